/** Colours of the style sheet for what is drawn on a canvas, and a signal that changes with the system's choice. */
import { signal } from '@preact/signals';

const dark = matchMedia('(prefers-color-scheme: dark)');
export const theme = signal<'light' | 'dark'>(dark.matches ? 'dark' : 'light');
dark.addEventListener('change', () => {
  theme.value = dark.matches ? 'dark' : 'light';
});

/** A phone: tables then show what watching needs. */
const small = matchMedia('(max-width: 820px)');
export const isSmall = signal(small.matches);
small.addEventListener('change', () => {
  isSmall.value = small.matches;
});

/** The value of a custom property: `color('--training')`. */
export function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
