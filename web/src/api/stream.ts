// A streamed completion: server-sent events as pieces of an answer.

import { Fault, ask, read } from "./client";

export interface CallDelta {
  index: number;
  id?: string;
  function?: { name?: string; arguments?: string };
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: { cached_tokens?: number };
  completion_tokens_details?: { reasoning_tokens?: number };
}

/** What came since the piece before. */
export interface Piece {
  text?: string;
  thoughts?: string;
  calls?: CallDelta[];
  end?: string;
  usage?: Usage;
  model?: string;
}

interface Chunk {
  model?: string;
  error?: unknown;
  usage?: Usage | null;
  choices?: {
    /** Of a continued text. */
    text?: string;
    delta?: { content?: string | null; reasoning_content?: string | null; tool_calls?: CallDelta[] };
    finish_reason?: string | null;
  }[];
}

/** Asks for an answer, or for more of a text, and gives its pieces. */
export async function* stream(path: string, body: unknown, signal: AbortSignal): AsyncGenerator<Piece> {
  const response = await ask(path, body, signal);
  if (!response.body) throw new Fault("The answer has no body.", response.status);
  for await (const data of events(response.body, signal)) {
    if (data === "[DONE]") return;
    let chunk: Chunk;
    try {
      chunk = JSON.parse(data) as Chunk;
    } catch {
      throw new Fault("A part of the answer is no JSON.", response.status);
    }
    if (chunk.error) throw read(data, response.status);
    const choice = chunk.choices?.[0];
    const piece: Piece = {};
    if (chunk.model) piece.model = chunk.model;
    const text = choice?.delta?.content ?? choice?.text;
    if (text) piece.text = text;
    if (choice?.delta?.reasoning_content) piece.thoughts = choice.delta.reasoning_content;
    if (choice?.delta?.tool_calls) piece.calls = choice.delta.tool_calls;
    if (choice?.finish_reason) piece.end = choice.finish_reason;
    if (chunk.usage) piece.usage = chunk.usage;
    yield piece;
  }
  throw new Fault("The connection ended before the answer did.");
}

/** The data of each event. */
async function* events(body: ReadableStream<Uint8Array>, signal: AbortSignal): AsyncGenerator<string> {
  const reader = body.getReader();
  const decoder = new TextDecoder();
  let held = "";
  try {
    for (;;) {
      let read: ReadableStreamReadResult<Uint8Array>;
      try {
        read = await reader.read();
      } catch (error) {
        if (signal.aborted) throw error;
        throw new Fault("The connection broke before the answer ended.");
      }
      if (read.done) return;
      held += decoder.decode(read.value, { stream: true });
      const parts = held.split(/\r?\n\r?\n/);
      held = parts.pop() ?? "";
      for (const part of parts) {
        const lines = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
        if (lines.length > 0) yield lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n");
      }
    }
  } finally {
    void reader.cancel().catch(() => undefined);
  }
}
