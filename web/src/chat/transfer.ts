// Conversations as files, and back. What a file says is checked: it may come from anywhere.

import { NO_SETTINGS, newId, type Call, type Conversation, type Sampling, type Turn } from "./types";

const FORMAT = "arclight-conversations";

export function exported(all: Conversation[]): string {
  return JSON.stringify({ format: FORMAT, version: 1, conversations: all }, null, 2);
}

export function save(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

type Fields = Record<string, unknown>;
const isFields = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value);
const text = (value: unknown, otherwise = ""): string => (typeof value === "string" ? value : otherwise);
const number = (value: unknown, otherwise: number): number =>
  typeof value === "number" && Number.isFinite(value) ? value : otherwise;
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

/** Reads a file; what is wrong with it is said in words. Ids that are in use get new ones. */
export function imported(file: string, inUse: (id: string) => boolean): Conversation[] {
  let value: unknown;
  try {
    value = JSON.parse(file);
  } catch (error) {
    throw new Error(`The file is no JSON: ${error instanceof Error ? error.message : ""}`);
  }
  if (!isFields(value) || value.format !== FORMAT) throw new Error("The file was not exported by Arclight.");
  if (value.version !== 1) throw new Error(`The file is of version ${String(value.version)}; this page reads version 1.`);
  return list(value.conversations).map((one, at) => {
    if (!isFields(one)) throw new Error(`Conversation ${at + 1} of the file is damaged.`);
    const read = conversation(one, at);
    return inUse(read.id) ? { ...read, id: newId() } : read;
  });
}

function conversation(value: Fields, at: number): Conversation {
  if (!isFields(value.turns)) throw new Error(`Conversation ${at + 1} of the file has no messages.`);
  const turns: Record<string, Turn> = {};
  for (const [id, one] of Object.entries(value.turns)) {
    const read = turn(id, one);
    if (read) turns[id] = read;
  }
  for (const one of Object.values(turns)) {
    if (one.parent !== null && !turns[one.parent]) throw new Error(`Conversation ${at + 1} of the file lacks a message.`);
    const seen = new Set<string>();
    for (let up: Turn | undefined = one; up; up = up.parent === null ? undefined : turns[up.parent]) {
      if (seen.has(up.id)) throw new Error(`Conversation ${at + 1} of the file leads in a circle.`);
      seen.add(up.id);
    }
  }
  const settings = isFields(value.settings) ? value.settings : {};
  const chosen = isFields(value.chosen) ? value.chosen : {};
  const now = Date.now();
  return {
    id: text(value.id) || newId(),
    title: text(value.title, "Imported conversation").slice(0, 200),
    named: value.named === true,
    created: number(value.created, now),
    updated: number(value.updated, now),
    model: typeof value.model === "string" ? value.model : null,
    settings: {
      ...NO_SETTINGS,
      system: text(settings.system),
      tools: text(settings.tools),
      plain: settings.plain === true,
      sampling: isFields(settings.sampling) ? (settings.sampling as Sampling) : {},
    },
    turns,
    chosen: Object.fromEntries(Object.entries(chosen).filter(([, id]) => typeof id === "string")) as Record<string, string>,
  };
}

function turn(id: string, value: unknown): Turn | null {
  if (!isFields(value)) return null;
  const role = value.role;
  if (role !== "user" && role !== "assistant" && role !== "tool") return null;
  const images = list(value.images).filter((url): url is string => typeof url === "string" && url.startsWith("data:image/"));
  const calls = list(value.calls)
    .filter(isFields)
    .map((call): Call => ({ id: text(call.id), name: text(call.name), arguments: text(call.arguments) }));
  const read: Turn = {
    id,
    parent: typeof value.parent === "string" ? value.parent : null,
    role,
    text: text(value.text),
    created: number(value.created, 0),
  };
  if (images.length > 0) read.images = images;
  if (calls.length > 0) read.calls = calls;
  if (typeof value.thoughts === "string") read.thoughts = value.thoughts;
  if (typeof value.callId === "string") read.callId = value.callId;
  if (typeof value.model === "string") read.model = value.model;
  if (value.edited === true) read.edited = true;
  if (value.continued === true) read.continued = true;
  if (value.end === "stop" || value.end === "length" || value.end === "tool_calls" || value.end === "stopped") read.end = value.end;
  const usage = value.usage;
  if (isFields(usage) && typeof usage.prompt_tokens === "number" && typeof usage.completion_tokens === "number") {
    read.usage = usage as unknown as NonNullable<Turn["usage"]>;
  }
  const times = value.times;
  if (isFields(times) && typeof times.first === "number" && typeof times.rest === "number") {
    read.times = { first: times.first, rest: times.rest };
  }
  return read;
}
