// A modal dialog: the browser's own, which keeps the focus inside and closes with Escape.

import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";
import { Close } from "./icons";

interface Props {
  title: string;
  onClose: () => void;
  children: ComponentChildren;
  side?: boolean;
}

export function Dialog({ title, onClose, children, side = false }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const it = dialog.current;
    const before = document.activeElement;
    if (it && !it.open) it.showModal();
    return () => {
      it?.close();
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      class={side ? "dialog side" : "dialog"}
      aria-label={title}
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
      onClick={(event) => event.target === dialog.current && onClose()}
    >
      <div class="dialog-body">
        <header>
          <h2>{title}</h2>
          <button type="button" class="icon" aria-label="Close" onClick={onClose}>
            <Close />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
