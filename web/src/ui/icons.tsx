// Icons: strokes on a square of 24. They say nothing of themselves: buttons have labels.

import type { ComponentChildren } from "preact";

function Icon({ children, size = 18 }: { children: ComponentChildren; size?: number }) {
  return (
    <svg
      viewBox="0 0 24 24"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      stroke-width="1.8"
      stroke-linecap="round"
      stroke-linejoin="round"
      aria-hidden="true"
      focusable="false"
    >
      {children}
    </svg>
  );
}

export const Plus = () => <Icon><path d="M12 5v14M5 12h14" /></Icon>;
export const Menu = () => <Icon size={20}><path d="M4 7h16M4 12h16M4 17h16" /></Icon>;
export const Close = () => <Icon><path d="M6 6l12 12M18 6L6 18" /></Icon>;
export const Send = () => <Icon><path d="M12 19V5M6 11l6-6 6 6" /></Icon>;
export const Stop = () => <Icon><rect x="7" y="7" width="10" height="10" rx="1.5" fill="currentColor" stroke="none" /></Icon>;
export const Copy = () => <Icon size={16}><rect x="9" y="9" width="11" height="11" rx="2" /><path d="M15 5.5A1.5 1.5 0 0 0 13.5 4h-8A1.5 1.5 0 0 0 4 5.5v8A1.5 1.5 0 0 0 5.5 15" /></Icon>;
export const Check = () => <Icon size={16}><path d="M5 12.5l4.5 4.5L19 7.5" /></Icon>;
export const Pencil = () => <Icon size={16}><path d="M4 20l1-4L16.5 4.5a2.1 2.1 0 0 1 3 3L8 19l-4 1z" /></Icon>;
export const Again = () => <Icon size={16}><path d="M4 12a8 8 0 0 1 13.7-5.6L20 8.5M20 4v4.5h-4.5M20 12a8 8 0 0 1-13.7 5.6L4 15.5M4 20v-4.5h4.5" /></Icon>;
export const Forward = () => <Icon size={16}><path d="M5 6l6.5 6L5 18zM13 6l6.5 6-6.5 6z" /></Icon>;
export const Left = () => <Icon size={16}><path d="M14.5 6l-6 6 6 6" /></Icon>;
export const Right = () => <Icon size={16}><path d="M9.5 6l6 6-6 6" /></Icon>;
export const Down = () => <Icon><path d="M12 5v14M6 13l6 6 6-6" /></Icon>;
export const Sliders = () => <Icon><path d="M4 7h9M17 7h3M4 17h3M11 17h9" /><circle cx="15" cy="7" r="2" /><circle cx="9" cy="17" r="2" /></Icon>;
export const Trash = () => <Icon size={16}><path d="M4 7h16M9.5 7V4.5h5V7M6.5 7l.8 12.5h9.4L17.5 7M10 11v5M14 11v5" /></Icon>;
export const Image = () => <Icon><rect x="3.5" y="5" width="17" height="14" rx="2" /><circle cx="9" cy="10" r="1.5" /><path d="M4 17l5-4.5 3.5 3 3-2.5 5 4.5" /></Icon>;
export const Gauge = () => <Icon><path d="M4.5 18a9 9 0 1 1 15 0M12 14l4-4.5" /><circle cx="12" cy="14.5" r="1.2" /></Icon>;
export const Chat = () => <Icon><path d="M5 5h14a1.5 1.5 0 0 1 1.5 1.5v8A1.5 1.5 0 0 1 19 16h-7l-4.5 3.5V16H5a1.5 1.5 0 0 1-1.5-1.5v-8A1.5 1.5 0 0 1 5 5z" /></Icon>;
export const Sun = () => <Icon><circle cx="12" cy="12" r="4" /><path d="M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M5.6 18.4L7 17M17 7l1.4-1.4" /></Icon>;
export const Moon = () => <Icon><path d="M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z" /></Icon>;
export const System = () => <Icon><rect x="3.5" y="5" width="17" height="11.5" rx="1.5" /><path d="M9 20h6" /></Icon>;
export const Download = () => <Icon size={16}><path d="M12 4v11M7 10.5l5 5 5-5M5 20h14" /></Icon>;
export const Upload = () => <Icon size={16}><path d="M12 16V5M7 9.5l5-5 5 5M5 20h14" /></Icon>;
export const Tool = () => <Icon size={16}><path d="M14.5 6.5a4 4 0 0 1 5-1.5l-2.7 2.7.5 2 2 .5L22 7.5a4 4 0 0 1-5.5 4.8L9 19.8a2 2 0 0 1-2.8-2.8l7.5-7.5a4 4 0 0 1 .8-3z" /></Icon>;
export const Warning = () => <Icon><path d="M12 4L2.8 19.5h18.4L12 4zM12 10v4.5M12 17.2v.1" /></Icon>;
