// System prompt, sampling and tools of a conversation.

import { useState } from "preact/hooks";
import { key, keyWanted, setKey } from "../api/client";
import { Dialog } from "../ui/Dialog";
import { abilitiesOf, models } from "./models";
import { announcement, current, draft, setDefaults, update } from "./store";
import { EXAMPLE, parseTools, serverTools } from "./tools";
import { NO_SETTINGS, type Sampling, type Settings } from "./types";

type Numbers = Exclude<keyof Sampling, "stop" | "reasoning_effort">;

interface NumberField {
  name: Numbers;
  label: string;
  hint: string;
  min?: number;
  max?: number;
  step: number | "any";
}

const FIELDS: NumberField[] = [
  { name: "temperature", label: "Temperature", hint: "0 takes the likeliest token; higher is more varied", min: 0, max: 2, step: "any" },
  { name: "top_p", label: "Top p", hint: "only the likeliest tokens of this probability together", min: 0, max: 1, step: "any" },
  { name: "top_k", label: "Top k", hint: "only so many of the likeliest; 0 for all", min: 0, step: 1 },
  { name: "min_p", label: "Min p", hint: "none below this share of the likeliest", min: 0, max: 1, step: "any" },
  { name: "max_tokens", label: "Most tokens", hint: "length of an answer", min: 1, step: 1 },
  { name: "seed", label: "Seed", hint: "the same answer every time", step: 1 },
  { name: "repetition_penalty", label: "Repetition penalty", hint: "1 is off", min: 0, step: "any" },
  { name: "presence_penalty", label: "Presence penalty", hint: "−2 to 2", min: -2, max: 2, step: "any" },
  { name: "frequency_penalty", label: "Frequency penalty", hint: "−2 to 2", min: -2, max: 2, step: "any" },
];

function apply(settings: Settings): void {
  const conversation = current.value;
  if (conversation) update(conversation.id, (before) => ({ ...before, settings }));
  else draft.value = { ...draft.value, settings };
}

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  const settings = current.value?.settings ?? draft.value.settings;
  const model = (current.value ? current.value.model : draft.value.model) ?? models.value[0]?.id ?? null;
  const able = abilitiesOf(model);
  const [fault, setFault] = useState(faultOf(settings.tools));
  const set = (sampling: Sampling) => apply({ ...settings, sampling });
  const without = (name: keyof Sampling): Sampling => {
    const { [name]: _, ...rest } = settings.sampling;
    return rest;
  };
  return (
    <Dialog title="Settings of this conversation" onClose={onClose} side>
      <div class="fields">
        <label class="field">
          <span>System prompt</span>
          <textarea
            rows={4}
            value={settings.system}
            placeholder="What the model is told before everything else"
            onInput={(event) => apply({ ...settings, system: event.currentTarget.value })}
          />
        </label>
        <label class="check">
          <input
            type="checkbox"
            checked={settings.plain ?? false}
            onChange={(event) => apply({ ...settings, plain: event.currentTarget.checked })}
          />
          <span>Continue the text as it stands, without a chat template</span>
        </label>
        <fieldset>
          <legend>Sampling</legend>
          <p class="quiet">What is left empty is as the server has it: its values are shown in grey.</p>
          <div class="grid">
            {FIELDS.map(({ name, label, hint, min, max, step }) => (
              <div class="field" key={name}>
                <label for={`field-${name}`}>{label}</label>
                <input
                  id={`field-${name}`}
                  type="number"
                  inputMode="decimal"
                  min={min}
                  max={max}
                  step={step}
                  value={settings.sampling[name] ?? ""}
                  placeholder={able?.defaults[name === "repetition_penalty" ? "repeat_penalty" : name] ?? ""}
                  aria-describedby={`hint-${name}`}
                  onInput={(event) => {
                    const { value, valueAsNumber } = event.currentTarget;
                    set(value === "" || Number.isNaN(valueAsNumber) ? without(name) : { ...settings.sampling, [name]: valueAsNumber });
                  }}
                />
                <small id={`hint-${name}`}>{hint}</small>
              </div>
            ))}
            <div class="field">
              <label for="field-reasoning">Reasoning</label>
              <select
                id="field-reasoning"
                aria-describedby="hint-reasoning"
                value={settings.sampling.reasoning_effort ?? ""}
                onChange={(event) => {
                  const { value } = event.currentTarget;
                  set(value ? { ...settings.sampling, reasoning_effort: value } : without("reasoning_effort"));
                }}
              >
                <option value="">as the model has it</option>
                <option value="none">none</option>
                <option value="low">low</option>
                <option value="medium">medium</option>
                <option value="high">high</option>
              </select>
              <small id="hint-reasoning">
                {able && !able.thinking ? "this model does not think aloud" : "how much the model thinks first"}
              </small>
            </div>
          </div>
          <div class="field">
            <label for="field-stop">Stop at</label>
            <textarea
              id="field-stop"
              rows={2}
              value={(settings.sampling.stop ?? []).join("\n")}
              aria-describedby="hint-stop"
              onInput={(event) => {
                const stop = event.currentTarget.value.split("\n").filter((line) => line !== "");
                set(stop.length > 0 ? { ...settings.sampling, stop } : without("stop"));
              }}
            />
            <small id="hint-stop">texts that end an answer, one on a line</small>
          </div>
        </fieldset>
        <div class="field">
          <label for="field-tools">Tools</label>
          <textarea
            id="field-tools"
            class="mono"
            rows={settings.tools ? 12 : 3}
            spellcheck={false}
            value={settings.tools}
            placeholder="A JSON list of functions, as OpenAI's API takes them"
            aria-invalid={fault ? "true" : undefined}
            aria-describedby="tools-note"
            onInput={(event) => {
              apply({ ...settings, tools: event.currentTarget.value });
              setFault(faultOf(event.currentTarget.value));
            }}
          />
          <small id="tools-note" class={fault ? "bad" : ""}>
            {fault || (able && !able.tools ? "This model's template knows no tools." : "The model calls them; you type the results.")}
          </small>
        </div>
        {serverTools.value.length > 0 && (
          <div class="field">
            <label class="check">
              <input
                type="checkbox"
                checked={settings.mcp ?? false}
                aria-describedby="mcp-note"
                onChange={(event) => apply({ ...settings, mcp: event.currentTarget.checked })}
              />
              <span>Offer the tools of this server</span>
            </label>
            <small id="mcp-note">
              {serverTools.value.map((tool) => tool.function.name).join(", ")}. Each call is shown, and made when you say so.
            </small>
          </div>
        )}
        <div class="row wrap">
          {!settings.tools && (
            <button type="button" class="small" onClick={() => apply({ ...settings, tools: EXAMPLE })}>
              Insert an example tool
            </button>
          )}
          <button
            type="button"
            class="small"
            onClick={() => {
              setDefaults(settings);
              announcement.value = "New conversations will have these settings.";
              onClose();
            }}
          >
            Use for new conversations
          </button>
          <button
            type="button"
            class="small"
            onClick={() => {
              apply(NO_SETTINGS);
              setFault("");
            }}
          >
            Reset
          </button>
          {key() ? (
            <button type="button" class="small" onClick={() => setKey("", false)}>
              Forget the API key
            </button>
          ) : (
            <button
              type="button"
              class="small"
              onClick={() => {
                onClose();
                keyWanted.value = true;
              }}
            >
              Enter an API key
            </button>
          )}
        </div>
      </div>
    </Dialog>
  );
}

function faultOf(tools: string): string {
  try {
    parseTools(tools);
    return "";
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
