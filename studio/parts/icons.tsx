/** Line drawings on a 24-unit square, in the colour of the text around them. */
const paths = {
  runs: 'M3 17c4 0 5-7 9-7s4-5 9-6M3 21h18',
  rollouts: 'M4 5h16M4 10h10M4 15h16M4 20h7',
  chat: 'M4 5h16v11H9l-5 4z',
  data: 'M4 6c0-1.7 3.6-3 8-3s8 1.3 8 3-3.6 3-8 3-8-1.3-8-3zm0 0v12c0 1.7 3.6 3 8 3s8-1.3 8-3V6M4 12c0 1.7 3.6 3 8 3s8-1.3 8-3',
  train: 'M7 4l12 8-12 8z',
  models: 'M12 3l8 4.5v9L12 21l-8-4.5v-9zM4 7.5l8 4.5 8-4.5M12 12v9',
  close: 'M6 6l12 12M18 6L6 18',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  up: 'M6 15l6-6 6 6',
  down: 'M6 9l6 6 6-6',
  left: 'M15 6l-6 6 6 6',
  right: 'M9 6l6 6-6 6',
  stop: 'M6 6h12v12H6z',
  again: 'M20 11a8 8 0 1 0-2 6M20 4v7h-7',
  bin: 'M4 7h16M9 7V4h6v3M6 7l1 13h10l1-13',
  search: 'M11 4a7 7 0 1 0 0 14 7 7 0 0 0 0-14zM16 16l5 5',
  edit: 'M4 20l1-5L16 4l4 4L9 19zM14 6l4 4',
  good: 'M7 11v9H4v-9zM7 12l4-8c1.5 0 2 1 2 2v4h5.4c1 0 1.7 1 1.4 2l-1.5 6.5c-.2.9-.9 1.5-1.8 1.5H7',
  bad: 'M7 13V4H4v9zM7 12l4 8c1.5 0 2-1 2-2v-4h5.4c1 0 1.7-1 1.4-2l-1.5-6.5c-.2-.9-.9-1.5-1.8-1.5H7',
  warning: 'M12 3l10 18H2zM12 10v5M12 18v.5',
  info: 'M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM12 11v6M12 7v.5',
} as const;

export type IconName = keyof typeof paths;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      viewBox="0 0 24 24"
      width="18"
      height="18"
      fill="none"
      stroke="currentColor"
      stroke-width="1.9"
      aria-hidden="true"
    >
      <path d={paths[name]} stroke-linecap="round" stroke-linejoin="round" />
    </svg>
  );
}
