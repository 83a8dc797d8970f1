/**
 * Server-sent events. EventSource comes back by itself with the id of the last event; where the server refuses it (it
 * was restarted), the connection is declared lost and the stream opened anew once the server is back.
 */
import { signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { address, lose, reconnections, type Values } from './requests.ts';

type Handlers<Events> = { [Name in keyof Events]?: (data: Events[Name]) => void };

/** A browser opens at most six connections to one host, over all tabs: a hidden tab gives its stream back. */
const visible = signal(true);
globalThis.document?.addEventListener('visibilitychange', () => {
  visible.value = document.visibilityState === 'visible';
});

/** `query` is asked when the stream is opened, so that it can say how far one has read. */
export function useEvents<Events extends object>(
  path: string,
  query: () => Values,
  handlers: Handlers<Events>,
  wanted = true,
): void {
  const newest = useRef({ handlers, query });
  newest.current = { handlers, query };
  const names = Object.keys(handlers).join(',');
  const when = wanted && visible.value;
  const turn = reconnections.value;
  // `turn` opens the stream anew after a lost connection.
  useEffect(() => {
    if (!when) return;
    const source = new EventSource(address(path, newest.current.query()));
    for (const name of names.split(',')) {
      source.addEventListener(name, (event) => {
        newest.current.handlers[name as keyof Events]?.(JSON.parse((event as MessageEvent<string>).data));
      });
    }
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) lose();
      else setTimeout(() => source.readyState === EventSource.CONNECTING && lose(), 1500);
    };
    return () => source.close();
  }, [path, names, when, turn]);
}

/** The events of an answer to a POST, which EventSource cannot make. */
export async function* eventsOf(answer: Response): AsyncGenerator<{ event: string; data: unknown }> {
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  if (!reader) return;
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    rest += value;
    for (let end = rest.indexOf('\n\n'); end >= 0; end = rest.indexOf('\n\n')) {
      const event = parseEvent(rest.slice(0, end));
      rest = rest.slice(end + 2);
      if (event) yield event;
    }
  }
}

/** One event's lines; comments (heartbeats) give none. */
export function parseEvent(text: string): { event: string; data: unknown } | undefined {
  let event = 'message';
  const data: string[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith('event:')) event = line.slice(6).trim();
    else if (line.startsWith('data:')) data.push(line.slice(5).replace(/^ /, ''));
  }
  return data.length === 0 ? undefined : { event, data: JSON.parse(data.join('\n')) };
}
