// A message with what can be done with it.

import { Component, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { keyWanted } from "../api/client";
import { Markdown, toClipboard } from "../text/Markdown";
import { Again, Check, Copy, Forward, Left, Pencil, Right, Tool, Warning } from "../ui/icons";
import { grow } from "./Composer";
import { again, asText, ask, canGoOn, giveResults, goOn, rewrite } from "./send";
import { conversations, update } from "./store";
import { figures } from "./figures";
import { callTool, isServerTool, pretty } from "./tools";
import { turnTo } from "./tree";
import type { Call, Turn } from "./types";

interface Props {
  conversation: string;
  turn: Turn;
  /** Its place among its versions, from 1. */
  version: number;
  versions: number;
  /** No answer is on its way. */
  idle: boolean;
  last: boolean;
}

/** Drawn anew only when something of it has changed: a conversation may have hundreds. */
export class TurnView extends Component<Props> {
  override shouldComponentUpdate(next: Props): boolean {
    return (Object.keys(next) as (keyof Props)[]).some((name) => next[name] !== this.props[name]);
  }

  override render(props: Props) {
    switch (props.turn.role) {
      case "user":
        return <Question {...props} />;
      case "tool":
        return <Result {...props} />;
      case "assistant":
        return <Answer {...props} />;
    }
  }
}

function Question(props: Props) {
  const { conversation, turn, idle } = props;
  const [editing, setEditing] = useState(false);
  return (
    <article class="turn user" aria-label="You">
      {turn.images && (
        <ul class="images" aria-label="Images">
          {turn.images.map((url, at) => (
            <li key={at}>
              <img src={url} alt={`Image ${at + 1}`} />
            </li>
          ))}
        </ul>
      )}
      {editing ? (
        <Editor
          text={turn.text}
          action="Send"
          onCancel={() => setEditing(false)}
          onDone={(text) => {
            setEditing(false);
            ask(conversation, turn.parent, text, turn.images ?? []);
          }}
        />
      ) : (
        turn.text && (
          <p class="bubble" dir="auto">
            {turn.text}
          </p>
        )
      )}
      {!editing && (
        <Actions {...props}>
          <CopyButton text={turn.text} />
          <IconButton label="Edit this message" disabled={!idle} onClick={() => setEditing(true)}>
            <Pencil />
          </IconButton>
        </Actions>
      )}
    </article>
  );
}

function Result({ turn }: Props) {
  return (
    <article class="turn tool" aria-label="Result of a tool">
      <details>
        <summary>
          <Tool /> Result
        </summary>
        <pre tabIndex={0}>{pretty(turn.text) || "(empty)"}</pre>
      </details>
    </article>
  );
}

function Answer(props: Props) {
  const { conversation, turn, idle, last } = props;
  const [editing, setEditing] = useState(false);
  const waits = turn.pending && !turn.text && !turn.thoughts && !turn.calls;
  return (
    <article class="turn assistant" aria-label="Answer" aria-busy={turn.pending ? "true" : undefined}>
      {turn.thoughts && <Thoughts turn={turn} />}
      {waits && (
        <p class="waiting" role="img" aria-label="Waiting for the answer">
          <span />
          <span />
          <span />
        </p>
      )}
      {editing ? (
        <Editor
          text={turn.text}
          action="Keep as another version"
          onCancel={() => setEditing(false)}
          onDone={(text) => {
            setEditing(false);
            rewrite(conversation, turn, text);
          }}
        />
      ) : (
        turn.text && <Markdown text={turn.text} />
      )}
      {turn.calls && <Calls {...props} calls={turn.calls} open={last && idle && !turn.problem} />}
      {turn.problem && <Trouble conversation={conversation} turn={turn} idle={idle} />}
      {!turn.pending && !editing && (
        <Actions {...props}>
          {turn.text && <CopyButton text={turn.text} />}
          <IconButton label="Answer again" disabled={!idle} onClick={() => again(conversation, turn)}>
            <Again />
          </IconButton>
          {last && canGoOn(turn) && (
            <IconButton label="Go on with this answer" disabled={!idle} onClick={() => goOn(conversation, turn)}>
              <Forward />
            </IconButton>
          )}
          {turn.text && (
            <IconButton label="Edit this answer" disabled={!idle} onClick={() => setEditing(true)}>
              <Pencil />
            </IconButton>
          )}
          <span class="figures">{figures(turn).join(" · ")}</span>
        </Actions>
      )}
    </article>
  );
}

function Thoughts({ turn }: { turn: Turn }) {
  const thinking = turn.pending && !turn.text && !turn.calls;
  const tokens = turn.usage?.completion_tokens_details?.reasoning_tokens;
  return (
    <details class="thoughts">
      <summary>
        {thinking ? <span class="shimmer">Thinking…</span> : tokens ? `Thoughts, ${tokens} tokens` : "Thoughts"}
      </summary>
      <Markdown text={turn.thoughts ?? ""} />
    </details>
  );
}

function Calls({ conversation, turn, calls, open }: Props & { calls: Call[]; open: boolean }) {
  const [results, setResults] = useState<string[]>([]);
  const [fault, setFault] = useState("");
  const [busy, setBusy] = useState(false);
  const offered = conversations.value.get(conversation)?.settings.mcp ?? false;
  const ready = offered && calls.every((call) => isServerTool(call.name));
  // What is there already is not asked for again: a call may do something.
  const run = async () => {
    setBusy(true);
    setFault("");
    const all = calls.map((_, at) => results[at] ?? "");
    try {
      for (const [at, call] of calls.entries()) {
        if (all[at]) continue;
        all[at] = (await callTool(call.name, call.arguments)) || "(nothing)";
        setResults([...all]);
      }
      giveResults(conversation, turn, all);
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error));
    } finally {
      setBusy(false);
    }
  };
  return (
    <form
      class="calls"
      aria-label="Calls of tools"
      onSubmit={(event) => {
        event.preventDefault();
        giveResults(conversation, turn, results);
      }}
    >
      {calls.map((call, at) => (
        <div class="call" key={call.id}>
          <p class="call-head">
            <Tool /> <code>{call.name}</code>
          </p>
          <pre tabIndex={0} aria-label={`Arguments of ${call.name}`}>
            {pretty(call.arguments) || "{}"}
          </pre>
          {open && (
            <label class="field">
              <span>Result of {call.name}</span>
              <textarea
                rows={2}
                value={results[at] ?? ""}
                placeholder="Text or JSON that goes back to the model"
                onInput={(event) => {
                  const next = calls.map((_, i) => results[i] ?? "");
                  next[at] = event.currentTarget.value;
                  setResults(next);
                }}
              />
            </label>
          )}
        </div>
      ))}
      {open && (
        <div class="row end">
          {fault && (
            <small class="bad" role="alert">
              {fault}
            </small>
          )}
          {ready && (
            <button type="button" class="primary" disabled={busy} onClick={() => void run()}>
              {calls.length === 1 ? `Call ${calls[0]?.name ?? ""}` : "Call the tools"}
            </button>
          )}
          <button type="submit" class={ready ? "" : "primary"} disabled={busy}>
            {calls.length === 1 ? "Send the result" : "Send the results"}
          </button>
        </div>
      )}
    </form>
  );
}

function Trouble({ conversation, turn, idle }: { conversation: string; turn: Turn; idle: boolean }) {
  const { message, status, code, retryAfter } = turn.problem ?? { message: "", status: 0 };
  return (
    <div class="trouble" role="alert">
      <Warning />
      <div>
        <p>{message}</p>
        {status > 0 && (
          <p class="quiet">
            Status {status}
            {retryAfter ? `; it may work in ${retryAfter} s` : ""}
          </p>
        )}
        <div class="row">
          {status === 401 && (
            <button type="button" class="small" onClick={() => (keyWanted.value = true)}>
              Enter a key
            </button>
          )}
          {code === "no_chat_template" && (
            <button type="button" class="small" disabled={!idle} onClick={() => asText(conversation, turn)}>
              Continue the text instead
            </button>
          )}
          <button type="button" class="small" disabled={!idle} onClick={() => again(conversation, turn)}>
            Try again
          </button>
        </div>
      </div>
    </div>
  );
}

interface EditorProps {
  text: string;
  action: string;
  onDone: (text: string) => void;
  onCancel: () => void;
}

function Editor({ text, action, onDone, onCancel }: EditorProps) {
  const [value, setValue] = useState(text);
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    area.current?.focus();
    area.current?.setSelectionRange(text.length, text.length);
  }, []);
  useEffect(() => grow(area.current), [value]);
  return (
    <form
      class="editor"
      onSubmit={(event) => {
        event.preventDefault();
        if (value.trim()) onDone(value);
      }}
    >
      <textarea
        ref={area}
        aria-label="Text of the message"
        value={value}
        onInput={(event) => setValue(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            onCancel();
          } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
            event.currentTarget.form?.requestSubmit();
          }
        }}
      />
      <div class="row end">
        <button type="button" class="small" onClick={onCancel}>
          Cancel
        </button>
        <button type="submit" class="small primary" disabled={!value.trim()}>
          {action}
        </button>
      </div>
    </form>
  );
}

function Actions({ conversation, turn, version, versions, idle, children }: Props & { children: ComponentChildren }) {
  const go = (by: number) => update(conversation, (before) => turnTo(before, turn, by));
  return (
    <div class="actions">
      {versions > 1 && (
        <span class="versions" role="group" aria-label="Versions">
          <IconButton label="Version before" disabled={!idle || version === 1} onClick={() => go(-1)}>
            <Left />
          </IconButton>
          <span>
            {version}/{versions}
          </span>
          <IconButton label="Next version" disabled={!idle || version === versions} onClick={() => go(1)}>
            <Right />
          </IconButton>
        </span>
      )}
      {children}
    </div>
  );
}

interface ButtonProps {
  label: string;
  onClick: () => void;
  disabled?: boolean;
  children: ComponentChildren;
}

function IconButton({ label, onClick, disabled = false, children }: ButtonProps) {
  return (
    <button type="button" class="icon" aria-label={label} title={label} disabled={disabled} onClick={onClick}>
      {children}
    </button>
  );
}

function CopyButton({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    setDone(await toClipboard(text));
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <IconButton label={done ? "Copied" : "Copy"} onClick={() => void copy()}>
      {done ? <Check /> : <Copy />}
    </IconButton>
  );
}
