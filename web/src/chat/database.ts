// Conversations in the browser's database (IndexedDB). Nothing of them is kept on the server.

import type { Conversation } from "./types";

const STORE = "conversations";

function open(): Promise<IDBDatabase> {
  return new Promise((resolve, reject) => {
    const request = indexedDB.open("arclight", 1);
    request.onupgradeneeded = () => request.result.createObjectStore(STORE, { keyPath: "id" });
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error ?? new Error("the database cannot be opened"));
    request.onblocked = () => reject(new Error("the database is in use by an older page"));
  });
}

let database: Promise<IDBDatabase> | null = null;

async function run<T>(mode: IDBTransactionMode, what: (store: IDBObjectStore) => IDBRequest<T>): Promise<T> {
  database ??= open();
  const transaction = (await database).transaction(STORE, mode);
  return new Promise((resolve, reject) => {
    const request = what(transaction.objectStore(STORE));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onabort = () => reject(transaction.error ?? new Error("the database is full"));
    transaction.onerror = () => reject(transaction.error ?? new Error("the database failed"));
  });
}

export const all = (): Promise<Conversation[]> => run("readonly", (store) => store.getAll() as IDBRequest<Conversation[]>);

export const put = (conversation: Conversation): Promise<unknown> =>
  run("readwrite", (store) => store.put(conversation));

export const drop = (id: string): Promise<unknown> => run("readwrite", (store) => store.delete(id));
