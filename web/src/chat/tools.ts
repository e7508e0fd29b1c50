// Tools that the user defines as JSON.

export interface Tool {
  type: "function";
  function: { name: string; description?: string; parameters?: unknown };
}

/** Reads them; what is wrong is said in words. A list of functions without the frame around them will do, too. */
export function parseTools(text: string): Tool[] {
  if (!text.trim()) return [];
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`This is no JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (!Array.isArray(value)) throw new Error("Tools are a JSON list: […].");
  return value.map((one: unknown, at) => {
    const tool = one as { type?: unknown; function?: unknown; name?: unknown };
    const it = (tool?.function ?? (tool?.name ? tool : null)) as { name?: unknown } | null;
    if (typeof it?.name !== "string" || !it.name) throw new Error(`Tool ${at + 1} has no function with a name.`);
    return { type: "function", function: it as Tool["function"] };
  });
}

export const EXAMPLE = `[
  {
    "type": "function",
    "function": {
      "name": "get_weather",
      "description": "The weather in a city",
      "parameters": {
        "type": "object",
        "properties": { "city": { "type": "string" } },
        "required": ["city"]
      }
    }
  }
]`;

/** JSON text with indents; text that is no JSON, such as of a call that was cut off, as it is. */
export function pretty(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}
