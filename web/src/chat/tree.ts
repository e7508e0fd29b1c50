// The tree of a conversation's messages, and the path through it that is shown.

import type { Conversation, Turn } from "./types";

/** Versions of the message below a parent, the oldest first. */
export function versions(conversation: Conversation, parent: string | null): Turn[] {
  const all = Object.values(conversation.turns).filter((turn) => turn.parent === parent);
  return all.sort((a, b) => a.created - b.created);
}

function below(conversation: Conversation, parent: string | null): Turn | undefined {
  const all = versions(conversation, parent);
  const chosen = conversation.chosen[parent ?? ""];
  return all.find((turn) => turn.id === chosen) ?? all.at(-1);
}

/** The messages that are shown, from the first. */
export function path(conversation: Conversation): Turn[] {
  const turns: Turn[] = [];
  let next = below(conversation, null);
  while (next) {
    turns.push(next);
    next = below(conversation, next.id);
  }
  return turns;
}

/** The messages from the first to this one. */
export function pathTo(conversation: Conversation, id: string | null): Turn[] {
  const turns: Turn[] = [];
  for (let turn = id === null ? undefined : conversation.turns[id]; turn; ) {
    turns.unshift(turn);
    turn = turn.parent === null ? undefined : conversation.turns[turn.parent];
  }
  return turns;
}

/** With a message added, and shown. */
export function add(conversation: Conversation, turn: Turn): Conversation {
  // Versions stand in the order of their times, also where two come within a millisecond.
  const last = versions(conversation, turn.parent).at(-1)?.created ?? 0;
  const placed = { ...turn, created: Math.max(turn.created, last + 1) };
  return {
    ...conversation,
    turns: { ...conversation.turns, [turn.id]: placed },
    chosen: { ...conversation.chosen, [turn.parent ?? ""]: turn.id },
  };
}

/** With a message changed; unchanged where it is gone meanwhile. */
export function change(conversation: Conversation, id: string, to: Partial<Turn>): Conversation {
  const turn = conversation.turns[id];
  if (!turn) return conversation;
  return { ...conversation, turns: { ...conversation.turns, [id]: { ...turn, ...to } } };
}

/** Without a message and all that follows it. */
export function remove(conversation: Conversation, id: string): Conversation {
  const turn = conversation.turns[id];
  if (!turn) return conversation;
  const gone = new Set([id]);
  // Children may stand before their parents in the record of an imported conversation.
  for (let before = 0; before !== gone.size; ) {
    before = gone.size;
    for (const other of Object.values(conversation.turns)) {
      if (other.parent !== null && gone.has(other.parent)) gone.add(other.id);
    }
  }
  const kept = <T>(all: Record<string, T>) => Object.fromEntries(Object.entries(all).filter(([key]) => !gone.has(key)));
  const chosen = kept(conversation.chosen);
  const parent = turn.parent ?? "";
  if (chosen[parent] === id) delete chosen[parent];
  return { ...conversation, turns: kept(conversation.turns), chosen };
}

/** Shows the version that is `by` further. */
export function turnTo(conversation: Conversation, turn: Turn, by: number): Conversation {
  const all = versions(conversation, turn.parent);
  const next = all[all.findIndex((other) => other.id === turn.id) + by];
  if (!next) return conversation;
  return { ...conversation, chosen: { ...conversation.chosen, [turn.parent ?? ""]: next.id } };
}
