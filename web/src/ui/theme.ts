// Light, dark, or as the system has it. The first look at the choice is in public/theme.js.

import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const NAME = "arclight.theme";

function chosen(): Theme {
  const set = document.documentElement.dataset.theme;
  return set === "light" || set === "dark" ? set : "system";
}

export const theme = signal<Theme>(chosen());

export function setTheme(next: Theme): void {
  theme.value = next;
  const root = document.documentElement;
  if (next === "system") delete root.dataset.theme;
  else root.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, next);
  } catch {
    // Storage is switched off.
  }
}
