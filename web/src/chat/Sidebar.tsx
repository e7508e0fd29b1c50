// The list of conversations: search, rename, delete, export, import.

import { signal } from "@preact/signals";
import { useRef, useState } from "preact/hooks";
import { ThemeSwitch } from "../ui/ThemeSwitch";
import { Close, Download, Gauge, Pencil, Plus, Trash, Upload } from "../ui/icons";
import { announcement, conversations, currentId, drop, insert, rename, select, sorted, startOver } from "./store";
import { running, stop } from "./send";
import { exported, imported, save } from "./transfer";
import type { Conversation } from "./types";

/** Whether it is shown where there is no room for it beside the conversation. */
export const sidebarOpen = signal(false);

const DAY = 86_400_000;

function age(time: number): string {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (time >= midnight) return "Today";
  if (time >= midnight - DAY) return "Yesterday";
  if (time >= midnight - 7 * DAY) return "Last seven days";
  return "Earlier";
}

function matches(conversation: Conversation, words: string[]): boolean {
  const turns = Object.values(conversation.turns).map((turn) => turn.text);
  const text = [conversation.title, ...turns].join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

export function Sidebar() {
  const [query, setQuery] = useState("");
  const [fault, setFault] = useState("");
  const file = useRef<HTMLInputElement>(null);
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = sorted.value.filter((one) => matches(one, words));
  const groups = new Map<string, Conversation[]>();
  for (const one of found) groups.set(age(one.updated), [...(groups.get(age(one.updated)) ?? []), one]);

  const read = async (input: HTMLInputElement) => {
    const chosen = input.files?.[0];
    input.value = "";
    if (!chosen) return;
    try {
      const all = imported(await chosen.text(), (id) => conversations.value.has(id));
      insert(all);
      setFault("");
      announcement.value = all.length === 1 ? "One conversation was imported." : `${all.length} conversations were imported.`;
      if (all[0]) select(all[0].id);
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error));
    }
  };

  return (
    <nav class={sidebarOpen.value ? "sidebar open" : "sidebar"} aria-label="Conversations">
      <div class="brand">
        <img src="/icon.svg" alt="" width="24" height="24" />
        <span>Arclight</span>
        <button type="button" class="icon narrow-only" aria-label="Close the list" onClick={() => (sidebarOpen.value = false)}>
          <Close />
        </button>
      </div>
      <button
        type="button"
        class="new"
        onClick={() => {
          startOver();
          sidebarOpen.value = false;
          document.getElementById("question")?.focus();
        }}
      >
        <Plus /> New conversation
      </button>
      <label class="search">
        <span class="hidden">Search conversations</span>
        <input
          id="search"
          type="search"
          placeholder="Search"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      </label>
      <div class="list">
        {found.length === 0 && (
          <p class="quiet empty">{words.length > 0 ? "Nothing was found." : "Conversations are kept in this browser."}</p>
        )}
        {[...groups].map(([title, all]) => (
          <section key={title}>
            <h2>{title}</h2>
            <ul>
              {all.map((one) => (
                <Entry key={one.id} conversation={one} />
              ))}
            </ul>
          </section>
        ))}
      </div>
      {fault && (
        <p class="fault" role="alert">
          {fault}
        </p>
      )}
      <div class="foot">
        <a class="quiet-link" href="/status">
          <Gauge /> Status
        </a>
        <div class="row">
          <button
            type="button"
            class="icon"
            aria-label="Export all conversations"
            title="Export all conversations"
            disabled={conversations.value.size === 0}
            onClick={() => save("arclight-conversations.json", exported(sorted.value))}
          >
            <Download />
          </button>
          <button
            type="button"
            class="icon"
            aria-label="Import conversations"
            title="Import conversations"
            onClick={() => file.current?.click()}
          >
            <Upload />
          </button>
          <input
            ref={file}
            class="off-screen"
            type="file"
            accept="application/json,.json"
            tabIndex={-1}
            aria-label="File of conversations"
            onChange={(event) => void read(event.currentTarget)}
          />
          <ThemeSwitch />
        </div>
      </div>
    </nav>
  );
}

function Entry({ conversation }: { conversation: Conversation }) {
  const [mode, setMode] = useState<"" | "rename" | "delete">("");
  const { id, title } = conversation;
  const isCurrent = currentId.value === id;
  const open = () => {
    select(id);
    sidebarOpen.value = false;
  };
  if (mode === "rename") {
    return (
      <li class="entry">
        <form
          onSubmit={(event) => {
            event.preventDefault();
            rename(id, new FormData(event.currentTarget).get("title") as string);
            setMode("");
          }}
        >
          <input
            name="title"
            aria-label="New title"
            defaultValue={title}
            maxLength={200}
            ref={(input) => {
              if (input && document.activeElement !== input) input.select();
            }}
            onKeyDown={(event) => {
              if (event.key !== "Escape") return;
              event.stopPropagation();
              event.currentTarget.value = title;
              setMode("");
            }}
            onBlur={(event) => {
              rename(id, event.currentTarget.value);
              setMode("");
            }}
          />
        </form>
      </li>
    );
  }
  if (mode === "delete") {
    return (
      <li class="entry asking" role="group" aria-label={`Delete ${title}?`}>
        <span>Delete it?</span>
        <button
          type="button"
          class="small danger"
          ref={(button) => button?.focus()}
          onClick={() => {
            stop(id);
            drop(id);
          }}
        >
          Delete
        </button>
        <button type="button" class="small" onClick={() => setMode("")}>
          Keep
        </button>
      </li>
    );
  }
  return (
    <li class={isCurrent ? "entry current" : "entry"}>
      <button type="button" class="open" aria-current={isCurrent ? "true" : undefined} onClick={open} title={title}>
        {running.value.has(id) && <span class="dot" role="img" aria-label="Answering" />}
        {title}
      </button>
      <span class="tools">
        <button type="button" class="icon" aria-label={`Rename ${title}`} title="Rename" onClick={() => setMode("rename")}>
          <Pencil />
        </button>
        <button
          type="button"
          class="icon"
          aria-label={`Export ${title}`}
          title="Export"
          onClick={() => save(`${title.replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 60) || "conversation"}.json`, exported([conversation]))}
        >
          <Download />
        </button>
        <button type="button" class="icon" aria-label={`Delete ${title}`} title="Delete" onClick={() => setMode("delete")}>
          <Trash />
        </button>
      </span>
    </li>
  );
}
