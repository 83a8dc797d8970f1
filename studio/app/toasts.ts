/** Short messages that go away by themselves; failures stay until they are closed. */
import { signal } from '@preact/signals';

export interface Toast {
  id: number;
  level: 'done' | 'failure';
  text: string;
  /** A place that the message is about. */
  link?: { href: string; label: string };
}

export const toasts = signal<readonly Toast[]>([]);
let next = 1;

export function toast(text: string, link?: Toast['link']): void {
  const id = show({ level: 'done', text, ...(link ? { link } : {}) });
  setTimeout(() => closeToast(id), 6000);
}

export function toastFailure(error: unknown): void {
  show({ level: 'failure', text: error instanceof Error ? error.message : String(error) });
}

export function closeToast(id: number): void {
  toasts.value = toasts.peek().filter((each) => each.id !== id);
}

function show(message: Omit<Toast, 'id'>): number {
  const id = next++;
  toasts.value = [...toasts.peek().slice(-3), { id, ...message }];
  return id;
}
