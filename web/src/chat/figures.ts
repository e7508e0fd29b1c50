// What an answer took, in a few words. Only what is known: tokens are the server's count, times are as seen here.

import type { Turn } from "./types";

function seconds(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
}

const plural = (n: number, word: string): string => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

/** Pieces within so many milliseconds came almost at once, read from the same buffers: a rate would be invented. */
const AT_ONCE = 100;

export function figures(turn: Turn): string[] {
  const { usage, times, end, edited, continued } = turn;
  const said: string[] = [];
  if (edited && !continued) return ["edited"];
  if (continued) said.push("last part");
  if (end === "stopped") said.push("stopped");
  if (end === "length") said.push("cut off at the limit of tokens");
  if (usage) said.push(plural(usage.completion_tokens, "token"));
  // Between the first and the last piece there is a token less than there are. What came at once has no rate.
  if (usage && times && times.rest > AT_ONCE && usage.completion_tokens > 1) {
    const rate = ((usage.completion_tokens - 1) * 1000) / times.rest;
    said.push(`${rate < 100 ? rate.toFixed(1) : Math.round(rate).toLocaleString("en")} tokens/s`);
  }
  if (times) said.push(`first after ${seconds(times.first)}`);
  const cached = usage?.prompt_tokens_details?.cached_tokens;
  if (usage) {
    const prompt = `prompt of ${plural(usage.prompt_tokens, "token")}`;
    said.push(cached === undefined ? prompt : `${prompt}, ${cached.toLocaleString("en")} cached`);
  }
  return said;
}
