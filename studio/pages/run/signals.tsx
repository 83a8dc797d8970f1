/** What the numbers of the run say, in words. */
import { useSignal } from '@preact/signals';
import type { RunDetail } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { Icon } from '../../parts/icons.tsx';

export function Signals({ run }: { run: RunDetail }) {
  const all = useSignal(false);
  if (run.signals.length === 0) return null;
  const sorted = run.signals.toSorted((a, b) => Number(b.level === 'warning') - Number(a.level === 'warning'));
  const shown = all.value ? sorted : sorted.slice(0, 2);
  return (
    <section class="stack tight" aria-label="What the numbers say">
      <h2>What the numbers say</h2>
      {shown.map(({ kind, level, step, message }) => (
        <div key={kind} class={`signal ${level}`}>
          <Icon name={level === 'warning' ? 'warning' : 'info'} />
          <p>
            {message}{' '}
            {run.hasRollouts ? (
              <a href={href(['rollouts', run.id], { step })}>Step {step}</a>
            ) : (
              <span class="muted">Step {step}.</span>
            )}
          </p>
        </div>
      ))}
      {sorted.length > 2 && (
        <button
          type="button"
          class="link-button small"
          aria-expanded={all.value}
          onClick={() => {
            all.value = !all.value;
          }}
        >
          {all.value ? 'Show fewer' : `${sorted.length - 2} more`}
        </button>
      )}
    </section>
  );
}
