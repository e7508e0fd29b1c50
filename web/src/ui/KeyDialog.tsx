// Asks for the API key where the server wants one.

import { useState } from "preact/hooks";
import { keyRefused, keyWanted, setKey } from "../api/client";
import { Dialog } from "./Dialog";

export function KeyDialog({ onKey }: { onKey: () => void }) {
  const [value, setValue] = useState("");
  const [keep, setKeep] = useState(true);
  if (!keyWanted.value) return null;
  return (
    <Dialog title="This server asks for a key" onClose={() => (keyWanted.value = false)}>
      <form
        class="fields"
        onSubmit={(event) => {
          event.preventDefault();
          setKey(value.trim(), keep);
          setValue("");
          onKey();
        }}
      >
        <p>
          {keyRefused.value && <b class="bad">The server does not know this key. </b>}
          It was started with API keys. A key is sent to this server only, with each request.
        </p>
        <label class="field">
          <span>API key</span>
          <input
            type="password"
            autocomplete="off"
            autofocus
            required
            value={value}
            onInput={(event) => setValue(event.currentTarget.value)}
          />
        </label>
        <label class="check">
          <input type="checkbox" checked={keep} onChange={(event) => setKeep(event.currentTarget.checked)} />
          <span>Keep it in this browser</span>
        </label>
        <div class="row end">
          <button type="submit" class="primary">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
