/** What the numbers of the run say, in words. */
import { useSignal } from '@preact/signals';
import { Fragment } from 'preact';
import { useRef } from 'preact/hooks';
import type { RunDetail } from '../../../src/studio/api.ts';
import { href } from '../../app/router.ts';
import { isSmall } from '../../app/theme.ts';
import { Icon } from '../../parts/icons.tsx';
import type { Curve } from '../../wire/curves.ts';
import { type Place, placesOf } from './places.ts';

interface SignalsProps {
  run: RunDetail;
  curves: ReadonlyMap<string, Curve> | undefined;
}

export function Signals({ run, curves }: SignalsProps) {
  const all = useSignal(false);
  // What comes while one watches, or says it with other numbers, would push the curves away: it waits for a click.
  const live = useRef(run.state === 'running');
  const kept = useSignal(run.signals);
  const signals = live.current ? kept.value : run.signals;
  const fresh = run.signals.filter(({ kind }) => !signals.some((known) => known.kind === kind)).length;
  if (signals.length === 0 && !live.current) return null;
  const sorted = signals.toSorted((a, b) => Number(b.level === 'warning') - Number(a.level === 'warning'));
  const shown = all.value ? sorted : sorted.slice(0, 2);
  return (
    <section class="stack tight" aria-label="What the numbers say">
      <div class="row numbers-say">
        <h2>What the numbers say</h2>
        {fresh > 0 ? (
          <button
            type="button"
            class="button slim"
            onClick={() => {
              kept.value = run.signals;
            }}
          >
            {fresh} new: show
          </button>
        ) : (
          signals.length === 0 && <span class="small muted">nothing so far</span>
        )}
      </div>
      {shown.map((signal) => {
        const { kind, level, step, message } = signal;
        return (
          <div key={kind} class={`signal ${level}`}>
            <Icon name={level === 'warning' ? 'warning' : 'info'} />
            <p>
              <Told text={message} />{' '}
              {run.hasRollouts ? (
                <Places run={run} places={placesOf(signal, curves?.get('train/reward'))} />
              ) : (
                <span class="muted">Step {step}.</span>
              )}
            </p>
          </div>
        );
      })}
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

/** From what happened to the rollouts that show it, and to those from before it. */
function Places({ run, places }: { run: RunDetail; places: readonly Place[] }) {
  return (
    <span class="places">
      Rollouts:{' '}
      {places.map(({ step, what }, i) => (
        <Fragment key={what}>
          {i > 0 && ', '}
          <a href={href(['rollouts', run.id], { step })}>
            step {step} {what}
          </a>
        </Fragment>
      ))}
    </span>
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
