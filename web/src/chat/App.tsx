// The page at /.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { keyWanted } from "../api/client";
import { KeyDialog } from "../ui/KeyDialog";
import { copy } from "../text/Markdown";
import { Down, Menu, Sliders, Warning } from "../ui/icons";
import { Composer } from "./Composer";
import { SettingsDialog } from "./Settings";
import { Sidebar, sidebarOpen } from "./Sidebar";
import { TurnView } from "./TurnView";
import { learnAbilities, loadModels, modelTrouble, models, told } from "./models";
import { running, stop } from "./send";
import { loadServerTools } from "./tools";
import { announcement, current, currentId, draft, startOver, trouble, update } from "./store";
import { path, versions } from "./tree";

export function App() {
  const [settings, setSettings] = useState(false);
  const conversation = current.value;
  const chosen = (conversation ? conversation.model : draft.value.model) ?? models.value[0]?.id ?? null;
  useEffect(() => {
    void loadModels();
    void loadServerTools();
  }, []);
  const isLoaded = Boolean(models.value.find((model) => model.id === chosen)?.max_model_len);
  useEffect(() => {
    if (isLoaded) return;
    // Until the model is there: it may be being loaded.
    const again = setInterval(() => !keyWanted.value && void loadModels(), 3000);
    return () => clearInterval(again);
  }, [isLoaded]);
  useEffect(() => void (isLoaded && learnAbilities(chosen)), [chosen, isLoaded]);
  useEffect(() => {
    document.title = conversation ? `${conversation.title} · Arclight` : "Arclight";
  }, [conversation?.title]);
  useKeys();

  return (
    <div class="app">
      <a class="skip" href="#question">
        Skip to the message field
      </a>
      <Sidebar />
      {sidebarOpen.value && <div class="shade" onClick={() => (sidebarOpen.value = false)} />}
      <main>
        <header class="top">
          <button type="button" class="icon narrow-only" aria-label="Show conversations" onClick={() => (sidebarOpen.value = true)}>
            <Menu />
          </button>
          <ModelChoice chosen={chosen} />
          <h1 class="title">{conversation?.title ?? "New conversation"}</h1>
          <button type="button" class="icon" aria-label="Settings" title="Settings" onClick={() => setSettings(true)}>
            <Sliders />
          </button>
        </header>
        {(trouble.value || modelTrouble.value) && (
          <p class="banner" role="status">
            <Warning /> {trouble.value || modelTrouble.value}
          </p>
        )}
        {conversation && path(conversation).length > 0 ? <Thread /> : <Welcome chosen={chosen} />}
        <Composer />
      </main>
      {settings && <SettingsDialog onClose={() => setSettings(false)} />}
      <KeyDialog onKey={() => void loadModels().then(() => Promise.all([learnAbilities(chosen), loadServerTools()]))} />
      <p class="hidden" role="status" aria-live="polite">
        {announcement.value}
      </p>
    </div>
  );
}

function ModelChoice({ chosen }: { chosen: string | null }) {
  const all = models.value;
  const known = all.some((model) => model.id === chosen);
  return (
    <label class="model">
      <span class="hidden">Model</span>
      <select
        value={chosen ?? ""}
        disabled={all.length === 0}
        onChange={(event) => {
          const model = event.currentTarget.value;
          const conversation = current.value;
          if (conversation) update(conversation.id, (before) => ({ ...before, model }));
          else draft.value = { ...draft.value, model };
        }}
      >
        {all.length === 0 && <option value="">no model yet</option>}
        {chosen && !known && <option value={chosen}>{chosen} (not here)</option>}
        {all.map((model) => (
          <option key={model.id} value={model.id}>
            {model.id}
          </option>
        ))}
      </select>
    </label>
  );
}

function Welcome({ chosen }: { chosen: string | null }) {
  const model = models.value.find((one) => one.id === chosen);
  return (
    <div class="thread welcome">
      <h2>What would you like to know?</h2>
      <p class="quiet">{told(model)}</p>
    </div>
  );
}

/** Nearer to the end than this, in pixels, the page follows an answer. */
const NEAR = 80;

function Thread() {
  const conversation = current.value;
  const scroller = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const [away, setAway] = useState(false);
  const id = conversation?.id;
  useLayoutEffect(() => {
    follows.current = true;
    scroller.current?.scrollTo(0, scroller.current.scrollHeight);
  }, [id]);
  useLayoutEffect(() => {
    if (follows.current) scroller.current?.scrollTo(0, scroller.current.scrollHeight);
  });
  if (!conversation || !id) return null;
  const busy = running.value.has(id);
  const turns = path(conversation);
  const toEnd = () => {
    follows.current = true;
    setAway(false);
    scroller.current?.scrollTo({ top: scroller.current.scrollHeight });
  };
  return (
    <>
      <div
        class="thread"
        ref={scroller}
        onClick={copy}
        onScroll={(event) => {
          const { scrollHeight, scrollTop, clientHeight } = event.currentTarget;
          follows.current = scrollHeight - scrollTop - clientHeight < NEAR;
          setAway(!follows.current);
        }}
      >
        <div class="column">
          {turns.map((turn, at) => {
            const all = versions(conversation, turn.parent);
            return (
              <TurnView
                key={turn.id}
                conversation={id}
                turn={turn}
                version={all.findIndex((one) => one.id === turn.id) + 1}
                versions={all.length}
                idle={!busy}
                last={at === turns.length - 1}
              />
            );
          })}
        </div>
      </div>
      {away && (
        <button type="button" class="icon to-end" aria-label="To the end" onClick={toEnd}>
          <Down />
        </button>
      )}
    </>
  );
}

/** Escape stops an answer; Ctrl+K searches; Ctrl+Shift+O begins a conversation. */
function useKeys(): void {
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      const command = event.ctrlKey || event.metaKey;
      if (event.key === "Escape" && !document.querySelector("dialog[open]")) {
        if (sidebarOpen.value) sidebarOpen.value = false;
        else if (currentId.value) stop(currentId.value);
      } else if (command && !event.shiftKey && event.key.toLowerCase() === "k") {
        event.preventDefault();
        sidebarOpen.value = true;
        document.getElementById("search")?.focus();
      } else if (command && event.shiftKey && event.key.toLowerCase() === "o") {
        event.preventDefault();
        startOver();
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
