// Markdown to HTML. What a model writes is text: HTML in it is shown, never run.
//
// Highlighting and formulas are loaded when a text has some; until then it is shown without, and `ready` changes
// when they are there.

import { signal } from "@preact/signals";
import Parser, { type MarkdownIt } from "markdown-it";
import { formulas } from "./formulas";

/** Counts what has been loaded: texts are to be rendered again. */
export const ready = signal(0);

let highlight: typeof import("./highlight").highlight | null = null;
let formula: typeof import("./math").render | null = null;
const asked = new Set<string>();

function want(what: string, load: () => Promise<void>): void {
  if (asked.has(what)) return;
  asked.add(what);
  load().then(
    () => (ready.value += 1),
    () => asked.delete(what), // it stays plain until the next text
  );
}

const md: MarkdownIt = new Parser({ html: false, linkify: true, breaks: false, typographer: false });
const { escapeHtml } = md.utils;

formulas(md, (source, display) => {
  if (formula) {
    const html = formula(source, display);
    return display ? `<div class="formula" tabindex="0" role="group" aria-label="Formula">${html}</div>` : html;
  }
  want("math", async () => {
    formula = (await import("./math")).render;
  });
  return display ? `<pre class="formula">${escapeHtml(source)}</pre>` : `<code>${escapeHtml(source)}</code>`;
});

/** Code with its language and a button; `copy` in the page listens to it. */
function code(text: string, info: string): string {
  const language = info.trim().split(/[\s,{]/)[0]?.toLowerCase() ?? "";
  let html: string | null = null;
  if (highlight) {
    html = language ? highlight(text, language) : null;
  } else if (language) {
    want("highlight", async () => {
      highlight = (await import("./highlight")).highlight;
    });
  }
  const label = language || "text";
  return (
    `<div class="code"><div class="code-head"><span>${escapeHtml(label)}</span>` +
    `<button type="button" class="copy" data-copy aria-label="Copy this ${escapeHtml(label)} code">Copy</button></div>` +
    `<pre dir="ltr" tabindex="0" aria-label="${escapeHtml(label)} code"><code>${html ?? escapeHtml(text)}</code></pre></div>\n`
  );
}

md.renderer.rules.fence = (tokens, at) => code(tokens[at]?.content ?? "", tokens[at]?.info ?? "");
md.renderer.rules.code_block = (tokens, at) => code(tokens[at]?.content ?? "", "");
md.renderer.rules.table_open = () => '<div class="table" tabindex="0" role="group" aria-label="Table"><table>\n';
md.renderer.rules.table_close = () => "</table></div>\n";

md.renderer.rules.link_open = (tokens, at, options, _env, self) => {
  const token = tokens[at];
  token?.attrSet("rel", "noopener noreferrer nofollow");
  token?.attrSet("target", "_blank");
  return self.renderToken(tokens, at, options);
};

// The page asks nobody but its server, so an image elsewhere is a link.
md.renderer.rules.image = (tokens, at) => {
  const token = tokens[at];
  const source = String(token?.attrGet("src") ?? "");
  const text = token?.content || source;
  if (/^data:image\/(png|jpeg|gif|webp);/i.test(source)) {
    return `<img src="${escapeHtml(source)}" alt="${escapeHtml(token?.content ?? "")}">`;
  }
  return `<a href="${escapeHtml(source)}" rel="noopener noreferrer nofollow" target="_blank">Image: ${escapeHtml(text)}</a>`;
};

// Only what leads to a page or starts a letter; markdown-it itself refuses less (it lets unknown schemes pass).
const SCHEME = /^[a-z][a-z0-9+.-]*:/i;
const ALLOWED = /^(https?|mailto|tel):/i;
const IMAGE = /^data:image\/(png|jpeg|gif|webp);/i;
md.validateLink = (url) => {
  const trimmed = url.trim();
  return !SCHEME.test(trimmed) || ALLOWED.test(trimmed) || IMAGE.test(trimmed);
};

/** The HTML of each block of a text: blocks that stay the same need not be drawn again while a text grows. */
export function blocks(text: string): string[] {
  const env = {};
  const tokens = md.parse(text, env);
  const html: string[] = [];
  let from = 0;
  let depth = 0;
  tokens.forEach((token, at) => {
    depth += token.nesting;
    if (depth > 0) return;
    html.push(md.renderer.render(tokens.slice(from, at + 1), md.options, env));
    from = at + 1;
  });
  return html;
}
