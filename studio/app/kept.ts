/** Choices of the reader that outlive the tab: axis, smoothing, columns. What they look at lies in the address instead. */
import { effect, type Signal, signal } from '@preact/signals';

export function kept<T>(name: string, initial: T): Signal<T> {
  const key = `attune-studio/${name}`;
  const value = signal<T>(read(key, initial));
  effect(() => {
    try {
      localStorage.setItem(key, JSON.stringify(value.value));
    } catch {
      // Private windows refuse; the choice then lasts as long as the tab.
    }
  });
  return value;
}

function read<T>(key: string, initial: T): T {
  try {
    const text = localStorage.getItem(key);
    return text === null ? initial : (JSON.parse(text) as T);
  } catch {
    return initial;
  }
}
