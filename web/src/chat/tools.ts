// Tools that the user defines as JSON, and those of MCP servers that the server runs.

import { signal } from "@preact/signals";
import { json } from "../api/client";

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

/** Tools that the server can call. */
export const serverTools = signal<Tool[]>([]);

export async function loadServerTools(): Promise<void> {
  try {
    serverTools.value = (await json<{ tools: Tool[] }>("/page/mcp")).tools;
  } catch {
    // Servers of other versions have none, and a key is asked for elsewhere.
    serverTools.value = [];
  }
}

/** Whether a call is of a tool that the server can call. */
export function isServerTool(name: string): boolean {
  return serverTools.value.some((tool) => tool.function.name === name);
}

/** Has the server call a tool; what the model is told of it. */
export async function callTool(name: string, text: string): Promise<string> {
  let given: unknown;
  try {
    given = JSON.parse(text || "{}");
  } catch {
    return "error: the arguments are no JSON";
  }
  const { content, is_error } = await json<{ content: string; is_error: boolean }>("/page/mcp", { name, arguments: given });
  return is_error ? `error: ${content}` : content;
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
