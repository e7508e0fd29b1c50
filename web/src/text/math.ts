// Formulas. Loaded when there is one to show.

import katex from "katex";
import "katex/dist/katex.css";

/** HTML of a formula; faulty ones are shown as they are, in the colour of errors. */
export function render(source: string, display: boolean): string {
  return katex.renderToString(source, {
    displayMode: display,
    throwOnError: false,
    // Links, images and own classes are not a model's to give.
    trust: false,
    strict: false,
    maxExpand: 500,
    maxSize: 20,
  });
}
