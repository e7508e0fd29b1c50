// Questions to the server, and their answers as they come.

import { signal } from "@preact/signals";
import { Fault } from "../api/client";
import { stream, type CallDelta, type Usage } from "../api/stream";
import { learnAbilities, models } from "./models";
import { announcement, begin, conversations, current, flush, update } from "./store";
import { parseTools, serverTools } from "./tools";
import { add, change, path, pathTo, remove } from "./tree";
import { newId, type Call, type Conversation, type Problem, type Turn } from "./types";

/** Conversations in which an answer is on its way. */
export const running = signal<ReadonlyMap<string, AbortController>>(new Map());

export function stop(id: string): void {
  running.value.get(id)?.abort();
}

function setRunning(id: string, controller: AbortController | null): void {
  const all = new Map(running.value);
  if (controller) all.set(id, controller);
  else all.delete(id);
  running.value = all;
}

const TITLE = 60;

function titleOf(text: string): string {
  const line = text.trim().split("\n")[0]?.trim() ?? "";
  return line.length > TITLE ? `${line.slice(0, TITLE).trimEnd()}…` : line || "Image";
}

/** Puts a question below the last message that is shown, and asks for its answer. */
export function send(text: string, images: string[]): void {
  const conversation = current.value ?? begin();
  const last = path(conversation).at(-1) ?? null;
  ask(conversation.id, last?.id ?? null, text, images);
}

/** A question below some message: beside the version before, if there is one. */
export function ask(id: string, parent: string | null, text: string, images: string[]): void {
  const turn: Turn = { id: newId(), parent, role: "user", text, created: Date.now() };
  if (images.length > 0) turn.images = images;
  update(id, (before) => {
    const after = add(before, turn);
    const first = !before.named && Object.keys(before.turns).length === 0;
    return { ...after, updated: Date.now(), title: first ? titleOf(text) : before.title };
  });
  void answer(id, turn.id);
}

/** Another answer beside one that is there. One that failed without a word makes room for it. */
export function again(id: string, turn: Turn): void {
  if (turn.problem && !turn.text && !turn.thoughts && !turn.calls) update(id, (before) => remove(before, turn.id));
  void answer(id, turn.parent);
}

/** Whether an answer that ended early can be gone on with: the model is given its text as the beginning. */
export function canGoOn(turn: Turn): boolean {
  const early = turn.end === "length" || turn.end === "stopped" || turn.problem !== undefined;
  return early && turn.text !== "" && !turn.thoughts && !turn.calls;
}

/** Goes on with an answer that ended early. */
export function goOn(id: string, turn: Turn): void {
  void answer(id, turn.parent, turn);
}

/** A changed answer, as another version. */
export function rewrite(id: string, turn: Turn, text: string): void {
  const { usage: _u, times: _t, problem: _p, end: _e, ...rest } = turn;
  update(id, (before) => ({
    ...add(before, { ...rest, id: newId(), text, created: Date.now(), edited: true }),
    updated: Date.now(),
  }));
}

/** The results of an answer's calls, and the next answer. */
export function giveResults(id: string, turn: Turn, results: string[]): void {
  let parent = turn.id;
  update(id, (before) => {
    let after = before;
    (turn.calls ?? []).forEach((call, at) => {
      const result: Turn = {
        id: newId(),
        parent,
        role: "tool",
        text: results[at] ?? "",
        callId: call.id,
        created: Date.now(),
      };
      after = add(after, result);
      parent = result.id;
    });
    return { ...after, updated: Date.now() };
  });
  void answer(id, parent);
}

/** A message as the server takes it. */
function message(turn: Turn): unknown {
  if (turn.role === "tool") return { role: "tool", tool_call_id: turn.callId, content: turn.text };
  if (turn.role === "user") {
    if (!turn.images?.length) return { role: "user", content: turn.text };
    const images = turn.images.map((url) => ({ type: "image_url", image_url: { url } }));
    return { role: "user", content: turn.text ? [...images, { type: "text", text: turn.text }] : images };
  }
  if (!turn.calls?.length) return { role: "assistant", content: turn.text };
  // Between a call and its result thoughts go on; those of ended answers are not sent.
  const thoughts = turn.thoughts ? { reasoning_content: turn.thoughts } : {};
  const calls = turn.calls.map((call) => ({
    id: call.id,
    type: "function",
    function: { name: call.name, arguments: call.arguments || "{}" },
  }));
  return { role: "assistant", content: turn.text || null, ...thoughts, tool_calls: calls };
}

/** The path and body of a request for an answer below a message, or for more of an answer. */
function requestFor(conversation: Conversation, parent: string | null, begun: Turn | null): [string, Record<string, unknown>] {
  const { system, tools, sampling, plain, mcp } = conversation.settings;
  const common: Record<string, unknown> = { ...sampling, stream: true, stream_options: { include_usage: true } };
  const model = conversation.model ?? models.value[0]?.id;
  if (model) common.model = model;
  // An answer of which nothing came is no message.
  const all = pathTo(conversation, begun ? begun.id : parent);
  const turns = all.filter((turn) => turn.role !== "assistant" || turn.text || turn.calls?.length);
  if (plain) {
    // The text as it stands. What is written behind an answer begins a line.
    const prompt = turns.reduce((text, turn) => text + (text && turn.role === "user" ? "\n" : "") + turn.text, "");
    const { reasoning_effort: _, ...rest } = common;
    return ["/v1/completions", { ...rest, prompt }];
  }
  const messages = turns.map(message);
  if (system.trim()) messages.unshift({ role: "system", content: system });
  const body: Record<string, unknown> = { ...common, messages };
  const own = parseTools(tools);
  // Of two with one name the user's own is meant.
  const others = mcp ? serverTools.value.filter((tool) => own.every((one) => one.function.name !== tool.function.name)) : [];
  const parsed = [...own, ...others];
  if (parsed.length > 0) body.tools = parsed;
  if (begun) body.continue_final_message = true;
  return ["/v1/chat/completions", body];
}

/** For a model without a chat template: the conversation is a text from now on, which it continues. */
export function asText(id: string, turn: Turn): void {
  update(id, (before) => ({ ...before, settings: { ...before.settings, plain: true } }));
  again(id, turn);
}

/** Adds parts of calls to those that are there. */
function merge(calls: Call[], deltas: CallDelta[]): Call[] {
  const all = [...calls];
  for (const delta of deltas) {
    const before = all[delta.index] ?? { id: delta.id ?? `call_${newId()}`, name: "", arguments: "" };
    all[delta.index] = {
      id: delta.id ?? before.id,
      name: before.name + (delta.function?.name ?? ""),
      arguments: before.arguments + (delta.function?.arguments ?? ""),
    };
  }
  return all.filter(Boolean);
}

function problemOf(error: unknown): Problem {
  if (error instanceof Fault) {
    const { message, status, code, retryAfter } = error;
    return { message, status, code, retryAfter };
  }
  return { message: error instanceof Error ? error.message : String(error), status: 0 };
}

const ENDS = ["stop", "length", "tool_calls"] as const;

/** Asks for an answer below a message, or for more of one, and writes it down as it comes. */
async function answer(id: string, parent: string | null, begun: Turn | null = null): Promise<void> {
  if (running.value.has(id)) return;
  const controller = new AbortController();
  setRunning(id, controller);
  const turn: Turn = begun ?? { id: newId(), parent, role: "assistant", text: "", created: Date.now(), pending: true };
  update(id, (before) => {
    const fresh = { pending: true, end: undefined, problem: undefined, continued: true };
    return { ...(begun ? change(before, begun.id, fresh) : add(before, turn)), updated: Date.now() };
  });
  announcement.value = "Waiting for the answer.";
  let [text, thoughts] = [turn.text, ""];
  let calls: Call[] = [];
  let usage: Usage | undefined;
  let [end, model]: [Turn["end"], string | undefined] = [undefined, undefined];
  let [first, last] = [0, 0];
  let frame = 0;
  const show = (more: Partial<Turn>) => {
    const so: Partial<Turn> = { text, ...more };
    if (thoughts) so.thoughts = thoughts;
    if (calls.length > 0) so.calls = calls;
    if (model) so.model = model;
    update(id, (before) => change(before, turn.id, so));
  };
  // As often as the screen is drawn; a page in the background is shown what came when it is looked at.
  const showSoon = () => {
    frame ||= requestAnimationFrame(() => {
      frame = 0;
      show({});
    });
  };
  const start = performance.now();
  try {
    const conversation = conversations.value.get(id);
    if (!conversation) return;
    const [path, body] = requestFor(conversation, parent, begun);
    for await (const piece of stream(path, body, controller.signal)) {
      if (piece.model) model = piece.model;
      if (piece.text || piece.thoughts || piece.calls) {
        last = performance.now();
        first ||= last;
      }
      text += piece.text ?? "";
      thoughts += piece.thoughts ?? "";
      if (piece.calls) calls = merge(calls, piece.calls);
      if (piece.usage) usage = piece.usage;
      const known = ENDS.find((one) => one === piece.end);
      if (known) end = known;
      showSoon();
    }
    finish({ ...(end ? { end } : {}) });
    announcement.value = calls.length > 0 && !text ? `The model calls ${calls.map((call) => call.name).join(", ")}.` : `Answer: ${text}`;
  } catch (error) {
    if (controller.signal.aborted) {
      finish({ end: "stopped" });
      announcement.value = "Stopped.";
    } else {
      const problem = problemOf(error);
      finish({ problem });
      announcement.value = `The answer failed. ${problem.message}`;
    }
  } finally {
    setRunning(id, null);
    void learnAbilities(conversations.value.get(id)?.model ?? models.value[0]?.id ?? null);
  }

  function finish(more: Partial<Turn>): void {
    cancelAnimationFrame(frame);
    const times = first > 0 ? { times: { first: first - start, rest: last - first } } : {};
    show({ ...more, ...times, ...(usage ? { usage } : {}), pending: undefined });
    flush();
  }
}
