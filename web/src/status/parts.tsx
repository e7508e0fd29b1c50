// The parts of the dashboard that figures are drawn with.

import type { ComponentChildren } from "preact";

/** Values over time, the last on the right. */
export function Spark({ values }: { values: (number | null)[] }) {
  const known = values.filter((value): value is number => value !== null);
  const top = Math.max(...known, 1e-9);
  const [width, height, most] = [120, 32, 60];
  const points = values.map((value, at) => {
    const x = width - ((values.length - 1 - at) * width) / (most - 1);
    return value === null ? null : `${x.toFixed(1)},${(height - 1.5 - (value / top) * (height - 3)).toFixed(1)}`;
  });
  return (
    <svg class="spark" viewBox={`0 0 ${width} ${height}`} preserveAspectRatio="none" aria-hidden="true">
      <polyline points={points.filter(Boolean).join(" ")} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" />
    </svg>
  );
}

interface TileProps {
  label: string;
  value: string;
  unit?: string;
  note?: string;
  history?: (number | null)[];
}

export function Tile({ label, value, unit, note, history }: TileProps) {
  return (
    <div class="tile">
      <dt>{label}</dt>
      <dd>
        <span class="value">{value}</span>
        {unit && <span class="unit"> {unit}</span>}
        {note && <span class="note">{note}</span>}
      </dd>
      {history && <Spark values={history} />}
    </div>
  );
}

export interface Part {
  label: string;
  share: number;
  kind: "first" | "second" | "third" | "rest";
  text?: string;
}

/** Parts of a whole: a bar, and its legend. */
export function Parts({ parts, label }: { parts: Part[]; label: string }) {
  return (
    <div class="parts" role="group" aria-label={label}>
      <div class="bar" aria-hidden="true">
        {parts.map((part) => (
          <span key={part.label} class={part.kind} style={{ width: `${Math.max(0, Math.min(1, part.share)) * 100}%` }} />
        ))}
      </div>
      <ul class="legend">
        {parts.map((part) => (
          <li key={part.label}>
            <span class={`swatch ${part.kind}`} aria-hidden="true" />
            {part.label} <b>{part.text ?? `${(part.share * 100).toFixed(0)} %`}</b>
          </li>
        ))}
      </ul>
    </div>
  );
}

export function Section({ title, children, id }: { title: string; children: ComponentChildren; id: string }) {
  return (
    <section class="section" aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}
