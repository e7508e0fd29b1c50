// The models that the server has, and what the chosen one can do.

import { signal } from "@preact/signals";
import { Fault, json } from "../api/client";

export interface Model {
  id: string;
  max_model_len?: number | null;
  parent?: string | null;
  /** Where a server has several: how far this one is. */
  status?: { value: string; error?: string };
}

/** How a model is, in a sentence. */
export function told(model: Model | undefined): string {
  if (!model) return modelTrouble.value ? "" : "Waiting for the server.";
  const { id, max_model_len: context, status } = model;
  if (context) return `${id} answers on this server, with a context of ${context.toLocaleString("en")} tokens.`;
  if (status?.value === "failed") return `${id} could not be loaded: ${status.error ?? "the server's log tells why"}`;
  if (status?.value === "unloaded") return `${id} is loaded when it is asked for the first time.`;
  return `${id} is being loaded.`;
}

export interface Abilities {
  vision: boolean;
  tools: boolean;
  thinking: boolean;
  /** The server's sampling where a request says nothing. */
  defaults: Readonly<Record<string, string>>;
}

export const models = signal<Model[]>([]);
export const modelTrouble = signal("");
const abilities = signal<ReadonlyMap<string, Abilities>>(new Map());

export async function loadModels(): Promise<void> {
  try {
    models.value = (await json<{ data: Model[] }>("/v1/models")).data;
    modelTrouble.value = "";
  } catch (error) {
    if (error instanceof Fault && error.status === 401) return;
    modelTrouble.value = error instanceof Error ? error.message : String(error);
  }
}

/** What a model can do; `null` until the server has told, and where it does not tell. */
export function abilitiesOf(id: string | null): Abilities | null {
  return (id && abilities.value.get(id)) || null;
}

const asked = new Set<string>();

/** Asks, once for each model, as soon as it is loaded. */
export async function learnAbilities(id: string | null): Promise<void> {
  if (!id || asked.has(id)) return;
  asked.add(id);
  try {
    const shown = await json<{ capabilities?: string[]; parameters?: string }>("/api/show", { model: id });
    const has = (name: string) => shown.capabilities?.includes(name) ?? false;
    const lines = (shown.parameters ?? "").split("\n").map((line) => line.trim().split(/\s+/));
    const defaults = Object.fromEntries(lines.filter((line) => line.length === 2) as [string, string][]);
    const all = new Map(abilities.value);
    abilities.value = all.set(id, { vision: has("vision"), tools: has("tools"), thinking: has("thinking"), defaults });
  } catch {
    // While it is being loaded, or without a key: again later.
    asked.delete(id);
  }
}
