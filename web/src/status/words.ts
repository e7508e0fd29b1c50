// Figures as people read them.

export const count = (n: number): string => Math.round(n).toLocaleString("en");

export function percent(share: number | null): string {
  if (share === null) return "–";
  const n = share * 100;
  return n > 0 && n < 1 ? "<1 %" : `${n.toFixed(0)} %`;
}

export function rate(bytes: number): string {
  const gb = bytes / 1e9;
  return `${gb.toFixed(gb < 10 ? 2 : 1)} GB/s`;
}

export function size(bytes: number): string {
  const gib = bytes / 2 ** 30;
  return gib >= 1 ? `${gib.toFixed(gib < 10 ? 1 : 0)} GiB` : `${(bytes / 2 ** 20).toFixed(0)} MiB`;
}

export function time(ms: number | null): string {
  if (ms === null) return "–";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${ms.toFixed(0)} ms`;
  const s = ms / 1000;
  return s < 120 ? `${s.toFixed(s < 10 ? 2 : 1)} s` : `${(s / 60).toFixed(1)} min`;
}

export function span(seconds: number): string {
  if (seconds < 90) return `${seconds.toFixed(0)} s`;
  if (seconds < 5400) return `${(seconds / 60).toFixed(0)} min`;
  if (seconds < 172_800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86_400).toFixed(0)} days`;
}

export const perSecond = (n: number): string => (n >= 100 ? count(n) : n.toFixed(1));
