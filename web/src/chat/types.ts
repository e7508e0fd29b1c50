// What a conversation is.

import type { Usage } from "../api/stream";

export interface Call {
  id: string;
  name: string;
  /** JSON text, as the model has written it. */
  arguments: string;
}

/** Times of an answer, in milliseconds, as this page saw them. */
export interface Times {
  /** From the request to the first piece. */
  first: number;
  /** From the first piece to the last. */
  rest: number;
}

export interface Problem {
  message: string;
  status: number;
  code?: string | null;
  retryAfter?: number | null;
}

/** A message. Those with the same parent are versions of each other. */
export interface Turn {
  id: string;
  parent: string | null;
  role: "user" | "assistant" | "tool";
  text: string;
  created: number;
  /** Data URLs. */
  images?: string[];
  thoughts?: string;
  calls?: Call[];
  /** The call that a tool's result is of. */
  callId?: string;
  model?: string;
  usage?: Usage;
  times?: Times;
  end?: "stop" | "length" | "tool_calls" | "stopped";
  problem?: Problem;
  /** The answer is on its way. */
  pending?: boolean;
  /** It ended early, and the model was asked to go on. Usage and times are of the last part. */
  continued?: boolean;
  /** Changed by the user after the model had written it. */
  edited?: boolean;
}

/** Fields of a request by their names; what is not there is the server's default. */
export interface Sampling {
  temperature?: number;
  top_p?: number;
  top_k?: number;
  min_p?: number;
  max_tokens?: number;
  seed?: number;
  repetition_penalty?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
  reasoning_effort?: string;
  stop?: string[];
}

export interface Settings {
  system: string;
  /** A JSON list, as OpenAI's `tools`; empty for none. */
  tools: string;
  sampling: Sampling;
  /** Tools of the server's MCP servers are offered, too. */
  mcp?: boolean;
  /** The model continues the text of the conversation, without its chat template. */
  plain?: boolean;
}

export interface Conversation {
  id: string;
  title: string;
  /** The title was given by the user. */
  named: boolean;
  created: number;
  updated: number;
  /** `null` for the server's first. */
  model: string | null;
  settings: Settings;
  turns: Record<string, Turn>;
  /** Which version is shown below each parent; "" stands for the beginning. */
  chosen: Record<string, string>;
}

export const NO_SETTINGS: Settings = { system: "", tools: "", sampling: {} };

export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(36).padStart(2, "0")).join("");
}
