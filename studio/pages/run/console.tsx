/** The end of the run's console, continued while it runs. It stays at the newest line unless one scrolls up. */
import type { Signal } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef, useState } from 'preact/hooks';
import type { ConsoleAnswer } from '../../../src/studio/api.ts';
import { Empty, Waiting } from '../../parts/page-parts.tsx';
import { useResource } from '../../wire/resource.ts';

export function Console({ id, more }: { id: string; more: Signal<readonly string[]> }) {
  const console = useResource<ConsoleAnswer>(`runs/${id}/console`, { lines: 1000 });
  const box = useRef<HTMLPreElement>(null);
  const atEnd = useRef(true);
  const [before, setBefore] = useState(more.peek().length);
  // What came by the stream before the answer is part of the answer.
  // Counted anew with each answer.
  useEffect(() => setBefore(more.peek().length), [console.data]);
  const lines = [...(console.data?.lines ?? []), ...more.value.slice(before)];
  useLayoutEffect(() => {
    const element = box.current;
    if (element && atEnd.current) element.scrollTop = element.scrollHeight;
  });
  if (!console.data) return <Waiting error={console.error} />;
  if (lines.length === 0)
    return (
      <Empty title="No console was kept">
        <p>Runs that the studio starts keep theirs. Of others it stays in the terminal that started them.</p>
      </Empty>
    );
  return (
    <pre
      ref={box}
      class="console card"
      role="log"
      aria-label="Console"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls
      tabIndex={0}
      onScroll={({ currentTarget: { scrollTop, clientHeight, scrollHeight } }) => {
        atEnd.current = scrollTop + clientHeight > scrollHeight - 30;
      }}
    >
      {console.data.truncated ? '…\n' : ''}
      {lines.join('\n')}
    </pre>
  );
}
