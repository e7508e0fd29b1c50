// The models of a server that has several.

import type { ModelView } from "./types";
import { count, size, span } from "./words";

export function Models({ models, shown }: { models: ModelView[]; shown: string }) {
  const loaded = models.filter((model) => model.bytes > 0);
  const bytes = loaded.reduce((sum, model) => sum + model.bytes, 0);
  const faults = models.filter((model) => model.error !== null);
  return (
    <>
      <div class="scroll" tabIndex={0} role="group" aria-label="The models, a table">
        <table class="models">
          <thead>
            <tr>
              <th scope="col">Model</th>
              <th scope="col">State</th>
              <th scope="col" class="n">Running</th>
              <th scope="col" class="n">Waiting</th>
              <th scope="col" class="n">Memory</th>
              <th scope="col" class="n">Last request</th>
            </tr>
          </thead>
          <tbody>
            {models.map((model) => (
              <tr key={model.name}>
                <td>
                  <a href={`?model=${encodeURIComponent(model.name)}`} aria-current={model.name === shown ? "true" : undefined}>
                    {model.name}
                  </a>
                </td>
                <td class={model.state === "failed" ? "bad" : ""}>
                  {model.state}
                  {model.pinned && ", pinned"}
                </td>
                <td class="n">{count(model.running)}</td>
                <td class="n">{count(model.waiting)}</td>
                <td class="n">{model.bytes > 0 ? size(model.bytes) : "–"}</td>
                <td class="n">{lastRequest(model)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {faults.length > 0 && (
        <ul class="faults">
          {faults.map((model) => (
            <li key={model.name}>
              <b>{model.name}</b>: {model.error}
            </li>
          ))}
        </ul>
      )}
      <p class="quiet">
        {loaded.length} of {models.length} in memory, with {size(bytes)}. What follows is of{" "}
        <b>{shown}</b>.
      </p>
    </>
  );
}

function lastRequest({ idle_seconds: idle, running, waiting }: ModelView): string {
  if (idle === null) return "–";
  return running + waiting > 0 ? "now" : `${span(idle)} ago`;
}

/** The model that the address of the page asks for; an empty text for the one that was asked for last. */
export const wanted = (): string => new URLSearchParams(location.search).get("model") ?? "";
