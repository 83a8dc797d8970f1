/** What the numbers of the run say, in words. */
import { useSignal } from '@preact/signals';
import type { RunDetail } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { Icon } from '../../parts/icons.tsx';
import type { Curve } from '../../wire/curves.ts';
import { steepestFall } from './steepest.ts';

interface SignalsProps {
  run: RunDetail;
  curves: ReadonlyMap<string, Curve> | undefined;
}

export function Signals({ run, curves }: SignalsProps) {
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
            <Told text={message} />{' '}
            {run.hasRollouts ? (
              <a href={href(['rollouts', run.id], { step })}>Step {step}</a>
            ) : (
              <span class="muted">Step {step}.</span>
            )}
            {kind === 'falling-reward' && <Fall run={run} curve={curves?.get('train/reward')} />}
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

/** From the collapse of the curve to the rollouts that show it. */
function Fall({ run, curve }: { run: RunDetail; curve: Curve | undefined }) {
  const step = curve && steepestFall(curve);
  if (step === undefined || !run.hasRollouts) return null;
  return (
    <>
      {', '}
      <a href={href(['rollouts', run.id], { step, sort: 'reward', dir: 'asc' })}>step {step}, where it fell most</a>
    </>
  );
}

/** On a phone the first words: the curves are what one looks for. */
function Told({ text }: { text: string }) {
  const whole = useSignal(false);
  if (!isSmall.value || whole.value || text.length < 100) return <>{text}</>;
  const cut = text.slice(0, 90).replace(/\s+\S*$/, '');
  return (
    <>
      {cut} …{' '}
      <button
        type="button"
        class="link-button"
        onClick={() => {
          whole.value = true;
        }}
      >
        more
      </button>
    </>
  );
}
