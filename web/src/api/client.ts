// Requests to the server that this page came from.

import { signal } from "@preact/signals";

const KEY = "arclight.key";

/** What went wrong with a request, in the server's words where it has said some. */
export class Fault extends Error {
  /** The HTTP status; 0 where there was no answer. */
  readonly status: number;
  readonly code: string | null;
  /** Seconds after which the server wants to be asked again. */
  readonly retryAfter: number | null;

  constructor(message: string, status = 0, code: string | null = null, retryAfter: number | null = null) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

/** Whether the server wants a key that it has not got. */
export const keyWanted = signal(false);
/** Whether it has got one that it does not know. */
export const keyRefused = signal(false);

/** The key, kept for this tab or for this browser. */
export function key(): string {
  try {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
  } catch {
    return unsaved;
  }
}

let unsaved = "";

export function setKey(value: string, keep: boolean): void {
  unsaved = value;
  try {
    sessionStorage.removeItem(KEY);
    localStorage.removeItem(KEY);
    if (value) (keep ? localStorage : sessionStorage).setItem(KEY, value);
  } catch {
    // Storage is switched off: the key lasts as long as the page.
  }
  keyWanted.value = false;
}

const PLACE = 'meta[name="arclight-token"]';

/** What shows a server without keys that a request is of its own page. */
let token = document.querySelector<HTMLMetaElement>(PLACE)?.content ?? "";

/** Reads the token again, for a server that was started anew; whether it has changed. */
async function renewToken(): Promise<boolean> {
  const before = token;
  try {
    const page = await fetch("/", { headers: { accept: "text/html" }, cache: "no-store" });
    const html = new DOMParser().parseFromString(await page.text(), "text/html");
    token = html.querySelector<HTMLMetaElement>(PLACE)?.content ?? "";
  } catch {
    // The first answer says what is wrong.
  }
  return token !== before;
}

/** Sends a request; an answer that is no success is a fault. */
export async function ask(path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  try {
    return await askOnce(path, body, signal);
  } catch (error) {
    const old = error instanceof Fault && error.code === "page_token_needed";
    if (!old || !(await renewToken())) throw error;
    return askOnce(path, body, signal);
  }
}

async function askOnce(path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = {};
  if (key()) headers.authorization = `Bearer ${key()}`;
  if (token) headers["x-arclight-token"] = token;
  if (body !== undefined) headers["content-type"] = "application/json";
  const method = body === undefined ? "GET" : "POST";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      signal: signal ?? null,
      cache: "no-store",
      body: body === undefined ? null : JSON.stringify(body),
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Fault("The server cannot be reached. It may have ended, or the network may be down.");
  }
  if (response.ok) return response;
  const fault = await faultOf(response);
  if (fault.status === 401) {
    keyRefused.value = key() !== "";
    keyWanted.value = true;
  }
  throw fault;
}

export async function json<T>(path: string, body?: unknown): Promise<T> {
  const response = await ask(path, body);
  try {
    return (await response.json()) as T;
  } catch {
    throw new Fault(`What ${path} gave is no JSON.`, response.status);
  }
}

async function faultOf(response: Response): Promise<Fault> {
  const text = await response.text().catch(() => "");
  const after = Number(response.headers.get("retry-after"));
  const retryAfter = after > 0 ? after : null;
  return read(text, response.status, retryAfter);
}

/** Reads a fault's body. Bodies of proxies are no JSON. */
export function read(text: string, status: number, retryAfter: number | null = null): Fault {
  try {
    const error = (JSON.parse(text) as { error?: unknown }).error;
    if (typeof error === "string") return new Fault(error, status, null, retryAfter);
    const { message, code } = error as { message?: unknown; code?: unknown };
    if (typeof message === "string") {
      return new Fault(message, status, typeof code === "string" ? code : null, retryAfter);
    }
  } catch {
    // Below.
  }
  const plain = text.length < 300 && !text.includes("<") ? text.trim() : "";
  return new Fault(plain || `The server answered with status ${status}.`, status, null, retryAfter);
}
