// Formulas in Markdown: $…$, $$…$$, \(…\) and \[…\].
//
// A dollar opens a formula only where none of prices and shell variables would be one: text follows it without a
// space, a closing one stands behind text without a space, and no digit follows that.

import type { MarkdownIt } from "markdown-it";

type Inline = Parameters<MarkdownIt["inline"]["ruler"]["push"]>[1];
type Block = Parameters<MarkdownIt["block"]["ruler"]["push"]>[1];

const BACKSLASH = 0x5c;
const DOLLAR = 0x24;

function find(source: string, mark: string, from: number, to: number): number {
  for (let at = source.indexOf(mark, from); at >= 0 && at < to; at = source.indexOf(mark, at + 1)) {
    let slashes = 0;
    while (source.charCodeAt(at - 1 - slashes) === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return at;
  }
  return -1;
}

const inline: Inline = (state, silent) => {
  const { src: source, pos: at, posMax: end } = state;
  const first = source.charCodeAt(at);
  let open: string;
  let close: string;
  if (first === DOLLAR) {
    open = close = source.startsWith("$$", at) ? "$$" : "$";
  } else if (first === BACKSLASH && (source[at + 1] === "(" || source[at + 1] === "[")) {
    open = source.slice(at, at + 2);
    close = open === "\\(" ? "\\)" : "\\]";
  } else {
    return false;
  }
  const from = at + open.length;
  const to = find(source, close, from, end);
  if (to <= from) return false;
  const content = source.slice(from, to);
  if (open === "$") {
    if (/^\s|\s$/.test(content) || /[0-9]/.test(source[to + 1] ?? "")) return false;
  }
  if (!silent) {
    const token = state.push("formula", "span", 0);
    token.content = content.trim();
    token.meta = { display: open === "$$" || open === "\\[" };
  }
  state.pos = to + close.length;
  return true;
};

const block: Block = (state, startLine, endLine, silent) => {
  const start = (state.bMarks[startLine] ?? 0) + (state.tShift[startLine] ?? 0);
  const open = state.src.slice(start, start + 2);
  if (open !== "$$" && open !== "\\[") return false;
  const close = open === "$$" ? "$$" : "\\]";
  const lines: string[] = [];
  for (let line = startLine; line < endLine; line += 1) {
    const from = (state.bMarks[line] ?? 0) + (state.tShift[line] ?? 0);
    const text = state.src.slice(from, state.eMarks[line]);
    // A blank line ends the paragraph, and with it what might have become a formula.
    if (line > startLine && !text.trim()) return false;
    const rest = line === startLine ? text.slice(2) : text;
    const to = find(rest, close, 0, rest.length);
    if (to < 0) {
      lines.push(rest);
      continue;
    }
    // Text behind it: a paragraph in which the formula stands.
    if (rest.slice(to + 2).trim()) return false;
    lines.push(rest.slice(0, to));
    if (silent) return true;
    const token = state.push("formula", "div", 0);
    token.block = true;
    token.content = lines.join("\n").trim();
    token.meta = { display: true };
    token.map = [startLine, line + 1];
    state.line = line + 1;
    return true;
  }
  return false;
};

/** Adds formulas; `render` makes HTML of one. */
export function formulas(md: MarkdownIt, render: (source: string, display: boolean) => string): void {
  md.inline.ruler.before("escape", "formula", inline);
  md.block.ruler.before("fence", "formula", block, { alt: ["paragraph", "blockquote", "list"] });
  md.renderer.rules.formula = (tokens, at) => {
    const token = tokens[at];
    return token ? render(token.content, (token.meta as { display: boolean }).display) : "";
  };
}
