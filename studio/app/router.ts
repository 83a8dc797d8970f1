/**
 * The address after `#` says what is shown: `#/runs/3f2a/rollouts?step=40&q=sum`. All that a reload must keep lies
 * there; the server needs to answer `/` alone.
 */
import { computed, signal } from '@preact/signals';

export type Query = Record<string, string>;

export interface Route {
  /** Decoded parts of the path: ['runs', '3f2a', 'rollouts']. */
  path: string[];
  query: Query;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = split(hash.replace(/^#/, ''));
  return {
    path: path.split('/').filter(Boolean).map(decode),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

export type QueryValues = Record<string, string | number | boolean | undefined | null>;

/** The address of a place, for links. Empty values are left out. */
export function href(path: readonly (string | number)[], query: QueryValues = {}): string {
  const given = Object.entries(query).flatMap(([name, value]) =>
    value === undefined || value === null || value === '' || value === false
      ? []
      : [[name, value === true ? '1' : String(value)]],
  );
  const search = new URLSearchParams(given).toString();
  return `#/${path.map((part) => encodeURIComponent(part)).join('/')}${search === '' ? '' : `?${search}`}`;
}

function split(text: string): [string, string] {
  const at = text.indexOf('?');
  return at < 0 ? [text, ''] : [text.slice(0, at), text.slice(at + 1)];
}

/** A hand-typed address may hold a stray %. */
function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>({ path: [], query: {} });
export const page = computed(() => route.value.path[0] ?? 'runs');

export function startRouter(): void {
  const read = () => {
    route.value = parseRoute(location.hash);
  };
  addEventListener('hashchange', read);
  read();
}

export function go(path: readonly (string | number)[], query: QueryValues = {}): void {
  location.hash = href(path, query);
}

/** Changes parts of the query in place: filters and sliders make no entries in the history. */
export function setQuery(patch: QueryValues): void {
  const { path, query } = route.peek();
  const address = href(path, { ...query, ...patch });
  history.replaceState(null, '', address);
  route.value = parseRoute(address);
}
