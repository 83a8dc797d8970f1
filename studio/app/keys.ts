/**
 * Keys: every binding is registered with the words that `?` lists. A binding lives as long as its component; while a
 * dialog is open only its own bindings count.
 */
import { signal } from '@preact/signals';
import { createContext } from 'preact';
import { useContext, useEffect, useRef } from 'preact/hooks';

export interface Binding {
  /** A key, or two in sequence: `j`, `Enter`, `g r`, `Shift+Enter`. */
  keys: string;
  what: string;
  run: () => void;
}

interface Group {
  title: string;
  layer: number;
  bindings: readonly Binding[];
}

export const groups = signal<readonly Group[]>([]);
/** How deep in dialogs a component lies: 0 for the page. */
export const Layer = createContext(0);
const openLayers: number[] = [];
let pending = '';
let pendingUntil = 0;

/** Registers bindings for as long as the component is shown. The newest functions are always the ones called. */
export function useKeys(title: string, bindings: readonly Binding[]): void {
  const layer = useContext(Layer);
  const newest = useRef(bindings);
  newest.current = bindings;
  const names = bindings.map(({ keys }) => keys).join(',');
  // The names stand for the bindings; their functions are read when called.
  useEffect(() => {
    const group: Group = {
      title,
      layer,
      bindings: newest.current.map((binding, i) => ({ ...binding, run: () => newest.current[i]?.run() })),
    };
    groups.value = [...groups.peek(), group];
    return () => {
      groups.value = groups.peek().filter((each) => each !== group);
    };
  }, [title, names, layer]);
}

/** A dialog's layer, which it gives to its content: while it is open, bindings below it are silent. */
export function useKeyLayer(): number {
  const layer = useContext(Layer) + 1;
  useEffect(() => {
    openLayers.push(layer);
    return () => {
      openLayers.splice(openLayers.lastIndexOf(layer), 1);
    };
  }, [layer]);
  return layer;
}

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable ||
    target instanceof HTMLTextAreaElement ||
    target instanceof HTMLSelectElement ||
    (target instanceof HTMLInputElement && !/^(checkbox|radio|range|button)$/.test(target.type)));

/** Buttons and links have their own meaning of Enter and of the space bar. */
const actsItself = (target: EventTarget | null, key: string) =>
  (key === 'Enter' || key === ' ') &&
  target instanceof HTMLElement &&
  target.closest('button, a, summary, input, [role=row]') !== null;

function nameOf(event: KeyboardEvent): string {
  const shifted = event.shiftKey && event.key.length > 1 ? 'Shift+' : '';
  return `${shifted}${event.key === ' ' ? 'Space' : event.key}`;
}

function pressed(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target) && event.key !== 'Escape') return;
  if (actsItself(event.target, event.key)) return;
  const name = nameOf(event);
  const sequence = Date.now() < pendingUntil ? `${pending} ${name}` : name;
  const layer = openLayers.at(-1) ?? 0;
  const active = groups.peek().filter((group) => group.layer === layer);
  // The newest registration wins: a page's own keys come before the shell's.
  const all = active.toReversed().flatMap((group) => group.bindings);
  const found = all.find(({ keys }) => keys === sequence) ?? all.find(({ keys }) => keys === name);
  pendingUntil = 0;
  if (found) {
    event.preventDefault();
    found.run();
  } else if (all.some(({ keys }) => keys.startsWith(`${name} `))) {
    pending = name;
    pendingUntil = Date.now() + 1200;
  }
}

export function startKeys(): void {
  addEventListener('keydown', pressed);
}
