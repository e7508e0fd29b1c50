// The conversations of this browser: in memory for the page, and in the database behind it.

import { computed, signal } from "@preact/signals";
import { stored, store } from "../ui/storage";
import * as database from "./database";
import { NO_SETTINGS, newId, type Conversation, type Settings } from "./types";

const DEFAULTS = "arclight.defaults";
const CURRENT = "arclight.current";

export const conversations = signal<ReadonlyMap<string, Conversation>>(new Map());
export const currentId = signal<string | null>(null);
export const current = computed(() => conversations.value.get(currentId.value ?? "") ?? null);
/** All of them, those used last first. */
export const sorted = computed(() => [...conversations.value.values()].sort((a, b) => b.updated - a.updated));
/** What is wrong with keeping them. */
export const trouble = signal("");
/** Told to who cannot see the page. */
export const announcement = signal("");
export const loaded = signal(false);

// Other tabs of this browser.
const others = typeof BroadcastChannel === "undefined" ? null : new BroadcastChannel("arclight");

export async function load(): Promise<void> {
  try {
    conversations.value = new Map((await database.all()).map((one) => [one.id, settle(one)]));
  } catch (error) {
    trouble.value = `Conversations are not kept: ${error instanceof Error ? error.message : String(error)}.`;
  }
  const last = stored<string | null>(CURRENT, null);
  if (last && conversations.value.has(last)) currentId.value = last;
  loaded.value = true;
  others?.addEventListener("message", (event: MessageEvent<{ put?: Conversation; drop?: string }>) => {
    const all = new Map(conversations.value);
    if (event.data.put) all.set(event.data.put.id, event.data.put);
    if (event.data.drop) all.delete(event.data.drop);
    conversations.value = all;
  });
  addEventListener("pagehide", flush);
}

/** An answer that was on its way when the page was closed. */
function settle(conversation: Conversation): Conversation {
  const turns = Object.entries(conversation.turns).map(([id, turn]) => {
    if (!turn.pending) return [id, turn] as const;
    const { pending: _, ...rest } = turn;
    return [id, { ...rest, end: "stopped" as const }] as const;
  });
  return { ...conversation, turns: Object.fromEntries(turns) };
}

/** While an answer comes, its conversation is written that often, in milliseconds. */
const SOON = 1000;
const unsaved = new Set<string>();
let timer: ReturnType<typeof setTimeout> | undefined;

/** Keeps what has changed now. */
export function flush(): void {
  clearTimeout(timer);
  timer = undefined;
  for (const id of unsaved) {
    const conversation = conversations.value.get(id);
    if (!conversation) continue;
    database.put(conversation).then(
      () => {
        trouble.value = "";
        others?.postMessage({ put: conversation });
      },
      (error: unknown) => (trouble.value = `This conversation could not be kept: ${String(error)}.`),
    );
  }
  unsaved.clear();
}

/** Changes a conversation, and keeps it soon. */
export function update(id: string, how: (before: Conversation) => Conversation): void {
  const before = conversations.value.get(id);
  if (!before) return;
  const after = how(before);
  if (after === before) return;
  conversations.value = new Map(conversations.value).set(id, after);
  unsaved.add(id);
  timer ??= setTimeout(flush, SOON);
}

export function select(id: string | null): void {
  currentId.value = id;
  store(CURRENT, id);
}

export const defaults = signal<Settings>(NO_SETTINGS);
defaults.value = stored<Settings>(DEFAULTS, NO_SETTINGS);

export function setDefaults(settings: Settings): void {
  defaults.value = settings;
  store(DEFAULTS, settings);
}

/** What a conversation that does not exist yet will have: settings and model are chosen before the first message. */
export const draft = signal<{ settings: Settings; model: string | null }>({ settings: defaults.value, model: null });

/** Begins one, with the settings of the draft. */
export function begin(): Conversation {
  const now = Date.now();
  const { settings, model } = draft.value;
  const made = { id: newId(), title: "New conversation", named: false, created: now, updated: now, turns: {}, chosen: {} };
  const conversation: Conversation = { ...made, model, settings };
  conversations.value = new Map(conversations.value).set(conversation.id, conversation);
  select(conversation.id);
  return conversation;
}

/** Shows the empty page on which a conversation is begun. */
export function startOver(): void {
  draft.value = { settings: defaults.value, model: current.value?.model ?? draft.value.model };
  select(null);
}

export function insert(all: Conversation[]): void {
  const map = new Map(conversations.value);
  for (const one of all) {
    map.set(one.id, one);
    unsaved.add(one.id);
  }
  conversations.value = map;
  flush();
}

export function rename(id: string, title: string): void {
  const text = title.trim();
  if (text) update(id, (before) => (before.title === text ? before : { ...before, title: text, named: true }));
}

export function drop(id: string): void {
  const all = new Map(conversations.value);
  all.delete(id);
  unsaved.delete(id);
  conversations.value = all;
  if (currentId.value === id) startOver();
  database.drop(id).then(
    () => others?.postMessage({ drop: id }),
    (error: unknown) => (trouble.value = `It could not be deleted: ${String(error)}.`),
  );
}
