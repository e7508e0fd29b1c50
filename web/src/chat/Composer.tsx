// Where questions are written.

import { useEffect, useRef, useState } from "preact/hooks";
import { Close, Image, Send, Stop } from "../ui/icons";
import { readImages } from "./images";
import { abilitiesOf, models } from "./models";
import { running, send, stop } from "./send";
import { current, currentId, draft } from "./store";

/** Where there is no real keyboard, Enter makes a line. */
const touch = matchMedia("(pointer: coarse)");

/** Lets a text field grow with its text. */
export function grow(area: HTMLTextAreaElement | null): void {
  if (!area) return;
  area.style.height = "auto";
  area.style.height = `${Math.min(area.scrollHeight + 2, innerHeight * 0.4)}px`;
}

export function Composer() {
  const [text, setText] = useState("");
  const [images, setImages] = useState<string[]>([]);
  const [fault, setFault] = useState("");
  const [over, setOver] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const file = useRef<HTMLInputElement>(null);
  const id = currentId.value;
  const busy = id !== null && running.value.has(id);
  const model = current.value ? current.value.model : draft.value.model;
  const sees = abilitiesOf(model ?? models.value[0]?.id ?? null)?.vision ?? false;

  useEffect(() => grow(area.current), [text]);
  useEffect(() => {
    if (!touch.matches) area.current?.focus();
    setFault("");
  }, [id]);

  const submit = () => {
    if (busy || (!text.trim() && images.length === 0)) return;
    send(text.trimEnd(), images);
    setText("");
    setImages([]);
    setFault("");
  };
  const take = async (files: Iterable<File>) => {
    const chosen = [...files].filter((one) => one.type.startsWith("image/"));
    if (chosen.length === 0) return;
    if (!sees) {
      setFault("This model sees no images: they need one that was started with its mmproj file (--mmproj).");
      return;
    }
    try {
      const read = await readImages(chosen);
      setImages((before) => [...before, ...read]);
      setFault("");
    } catch (error) {
      setFault(error instanceof Error ? error.message : String(error));
    }
  };

  // Wherever on the page they are dropped: beside the field a browser would leave the page for them.
  useEffect(() => {
    const hasFiles = (event: DragEvent) => event.dataTransfer?.types.includes("Files") ?? false;
    const drag = (event: DragEvent) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => event.relatedTarget === null && setOver(false);
    const drop = (event: DragEvent) => {
      setOver(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      void take(event.dataTransfer?.files ?? []);
    };
    addEventListener("dragover", drag);
    addEventListener("dragleave", leave);
    addEventListener("drop", drop);
    return () => {
      removeEventListener("dragover", drag);
      removeEventListener("dragleave", leave);
      removeEventListener("drop", drop);
    };
  });

  return (
    <form
      class={over ? "composer over" : "composer"}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {fault && (
        <p class="fault" role="alert">
          {fault}
        </p>
      )}
      <div class="box">
        {images.length > 0 && (
          <ul class="images" aria-label="Images to send">
            {images.map((url, at) => (
              <li key={url.slice(-40) + at}>
                <img src={url} alt={`Image ${at + 1}`} />
                <button
                  type="button"
                  class="icon"
                  aria-label={`Remove image ${at + 1}`}
                  onClick={() => setImages(images.filter((_, other) => other !== at))}
                >
                  <Close />
                </button>
              </li>
            ))}
          </ul>
        )}
        <label class="hidden" for="question">
          Message
        </label>
        <textarea
          id="question"
          dir="auto"
          ref={area}
          rows={1}
          placeholder="Ask something"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
          onPaste={(event) => {
            const files = [...(event.clipboardData?.files ?? [])];
            if (files.some((one) => one.type.startsWith("image/"))) {
              event.preventDefault();
              void take(files);
            }
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch.matches) {
              event.preventDefault();
              submit();
            }
          }}
        />
        <div class="row">
          {sees && (
            <>
              <button type="button" class="icon" aria-label="Add images" title="Add images" onClick={() => file.current?.click()}>
                <Image />
              </button>
              <input
                ref={file}
                class="off-screen"
                type="file"
                accept="image/png,image/jpeg,image/webp,image/gif"
                multiple
                tabIndex={-1}
                aria-label="Images"
                onChange={(event) => {
                  const { files } = event.currentTarget;
                  void take([...(files ?? [])]);
                  event.currentTarget.value = "";
                }}
              />
            </>
          )}
          <span class="quiet keys">{touch.matches ? "" : "Enter sends, Shift+Enter makes a line"}</span>
          {busy ? (
            <button type="button" class="send" aria-label="Stop the answer" title="Stop (Esc)" onClick={() => id && stop(id)}>
              <Stop />
            </button>
          ) : (
            <button type="submit" class="send" aria-label="Send" title="Send" disabled={!text.trim() && images.length === 0}>
              <Send />
            </button>
          )}
        </div>
      </div>
    </form>
  );
}
