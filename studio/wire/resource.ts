/**
 * What a component shows from the server: read when it appears or its address changes, read anew after a lost
 * connection, and kept on screen meanwhile, so that nothing jumps.
 *
 *     const runs = useResource<RunRow[]>('runs', {}, { every: 5000 });
 *     if (runs.data === undefined) return <Waiting error={runs.error} />;
 */
import { useLayoutEffect, useRef, useState } from 'preact/hooks';
import { address, get, reconnections, type Values } from './requests.ts';

export interface Resource<T> {
  data: T | undefined;
  error: Error | undefined;
  /** A request is under way; `data` may be of the one before. */
  loading: boolean;
  /** `data` is of this very query, not of the one before. */
  isCurrent: boolean;
  reload: () => void;
}

export interface ResourceOptions {
  /** Reads again after this many milliseconds while the tab is visible. */
  every?: number | undefined;
  /** No request at all while false. */
  when?: boolean;
  /** Waits this long after a change of the address: for what is typed. */
  delay?: number;
}

export function useResource<T>(path: string, query: Values = {}, options: ResourceOptions = {}): Resource<T> {
  const { every, when = true, delay = 0 } = options;
  const url = address(path, query);
  const [state, setState] = useState<{ url: string; path: string; data?: T; error?: Error }>({ url: '', path: '' });
  const [loading, setLoading] = useState(when);
  const [asked, setAsked] = useState(0);
  const first = useRef(true);
  const turn = reconnections.value;
  // `url` stands for the query; `asked` and `turn` ask again.
  // Asked before the page is drawn, not after.
  useLayoutEffect(() => {
    if (!when) return;
    const abort = new AbortController();
    const read = async () => {
      setLoading(true);
      try {
        const data = await get<T>(path, query, abort.signal);
        if (!abort.signal.aborted) setState({ url, path, data });
      } catch (error) {
        if (!abort.signal.aborted)
          setState((before) => ({
            ...(before.path === path ? before : { data: undefined }),
            url,
            path,
            error: error as Error,
          }));
      }
      if (!abort.signal.aborted) setLoading(false);
    };
    const start = first.current || delay === 0 ? void read() : setTimeout(read, delay);
    first.current = false;
    const clock =
      every === undefined ? undefined : setInterval(() => document.visibilityState === 'visible' && read(), every);
    return () => {
      abort.abort();
      clearTimeout(start);
      clearInterval(clock);
    };
  }, [url, when, every, asked, turn]);
  // Data of another path (another run) is not shown under this one's name; of another query it is, until the new comes.
  const fitting = state.path === path ? state : { data: undefined, error: undefined };
  return {
    data: fitting.data,
    error: fitting.error,
    loading,
    isCurrent: state.url === url,
    reload: () => setAsked((n) => n + 1),
  };
}
