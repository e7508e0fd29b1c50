// The last answers.

import type { Served } from "./types";
import { count, perSecond, time } from "./words";

const ENDS: Record<Served["end"], string> = {
  stop: "ended",
  length: "limit",
  tool_calls: "calls",
  abort: "cut off",
  error: "failed",
};

export function Requests({ requests }: { requests: Served[] }) {
  if (requests.length === 0) return <p class="quiet">There have been none.</p>;
  return (
    <div class="scroll" tabIndex={0} role="group" aria-label="The last answers, a table">
      <table>
        <thead>
          <tr>
            <th scope="col">Ended</th>
            <th scope="col">How</th>
            <th scope="col" class="n">Prompt</th>
            <th scope="col" class="n">Cached</th>
            <th scope="col" class="n">Tokens</th>
            <th scope="col" class="n">In the queue</th>
            <th scope="col" class="n">First token</th>
            <th scope="col" class="n">In all</th>
            <th scope="col" class="n">Tokens/s</th>
          </tr>
        </thead>
        <tbody>
          {requests.map((one, at) => (
            <tr key={at}>
              <td>{new Date(one.ended * 1000).toLocaleTimeString()}</td>
              <td class={one.end === "error" ? "bad" : ""}>{ENDS[one.end]}</td>
              <td class="n">{count(one.prompt_tokens)}</td>
              <td class="n">{count(one.cached_tokens)}</td>
              <td class="n">{count(one.tokens)}</td>
              <td class="n">{time(one.queued_ms)}</td>
              <td class="n">{time(one.first_ms)}</td>
              <td class="n">{time(one.total_ms)}</td>
              <td class="n">{one.tokens_per_second === null ? "–" : perSecond(one.tokens_per_second)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
