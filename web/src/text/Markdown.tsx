// A text in Markdown as elements.

import { Component } from "preact";
import { blocks, ready } from "./markdown";

class Block extends Component<{ html: string }> {
  override shouldComponentUpdate(next: { html: string }): boolean {
    return next.html !== this.props.html;
  }

  override render({ html }: { html: string }) {
    // Made by markdown.ts, which lets no HTML of the text through.
    return <div class="block" dir="auto" dangerouslySetInnerHTML={{ __html: html }} />;
  }
}

export function Markdown({ text }: { text: string }) {
  void ready.value;
  return (
    <div class="markdown">
      {blocks(text).map((html, at) => (
        <Block key={at} html={html} />
      ))}
    </div>
  );
}

/** Copies the code whose button was pressed. */
export function copy(event: MouseEvent): void {
  const button = (event.target as Element | null)?.closest<HTMLButtonElement>("button[data-copy]");
  if (!button) return;
  const code = button.closest(".code")?.querySelector("code")?.textContent ?? "";
  void toClipboard(code).then((done) => {
    const label = button.getAttribute("aria-label") ?? "";
    const say = (text: string, name: string) => {
      button.textContent = text;
      button.setAttribute("aria-label", name);
    };
    if (button.textContent !== "Copy") return;
    say(done ? "Copied" : "Not allowed", done ? "Copied" : "Not allowed");
    setTimeout(() => say("Copy", label), 1500);
  });
}

/** Whether a text could be copied. Over plain HTTP from another machine, browsers have only the older way. */
export async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.className = "off-screen";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
