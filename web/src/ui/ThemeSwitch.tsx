// The switch between light, dark and the system's theme.

import { Moon, Sun, System } from "./icons";
import { setTheme, theme, type Theme } from "./theme";

const THEMES: [Theme, string, () => preact.JSX.Element][] = [
  ["light", "Light", Sun],
  ["dark", "Dark", Moon],
  ["system", "As the system", System],
];

export function ThemeSwitch() {
  return (
    <fieldset class="themes">
      <legend class="hidden">Theme</legend>
      {THEMES.map(([value, label, Icon]) => (
        <label key={value} title={label}>
          <input
            type="radio"
            name="theme"
            value={value}
            checked={theme.value === value}
            onChange={() => setTheme(value)}
            aria-label={label}
          />
          <Icon />
        </label>
      ))}
    </fieldset>
  );
}
