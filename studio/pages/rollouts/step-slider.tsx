/** The steps of the run as a curve of their mean reward; the slider beneath picks one. */
import type { StepSummary } from '../../../src/studio/api.ts';
import { setQuery } from '../../app/router.ts';
import { count, percent, short } from '../../format/numbers.ts';

interface StepSliderProps {
  steps: readonly StepSummary[];
  step: number | undefined;
  isEval: boolean;
  canWhatIf: boolean;
}

export function StepSlider({ steps, step, isEval, canWhatIf }: StepSliderProps) {
  const at = steps.findIndex((each) => each.step === step);
  const here = steps[at];
  const last = steps.length - 1;
  return (
    <section class="steps card" aria-label="Steps">
      <div class="spread">
        <span class="number">
          {here ? (
            <>
              <b>Step {count(here.step)}</b> <span class="muted">{told(here)}</span>
            </>
          ) : (
            <>
              <b>All steps</b>{' '}
              <span class="muted">
                {steps.length > 0 && `${count(steps.length)} with responses; mean reward below, slide to pick one`}
              </span>
            </>
          )}
        </span>
        <span class="row tight">
          {canWhatIf && here && (
            <button type="button" class="button slim" onClick={() => setQuery({ view: 'what-if', open: undefined })}>
              What if …
            </button>
          )}
          {step !== undefined && (
            <button type="button" class="button slim" onClick={() => setQuery({ step: undefined })}>
              All steps
            </button>
          )}
        </span>
      </div>
      <div class={here ? 'step-track' : 'step-track idle'}>
        <StepCurve steps={steps} at={at} isEval={isEval} />
        <input
          type="range"
          aria-label="Step"
          aria-valuetext={here ? `step ${here.step}` : 'all steps'}
          min={0}
          max={Math.max(0, last)}
          value={at < 0 ? last : at}
          style={{ '--filled': at < 0 || last === 0 ? 1 : at / last }}
          disabled={steps.length < 2}
          onInput={(event) => setQuery({ step: steps[Number(event.currentTarget.value)]?.step })}
        />
      </div>
    </section>
  );
}

function told({ count: number, meanReward, accuracy }: StepSummary): string {
  const right = accuracy === undefined ? '' : `, ${percent(accuracy)} right`;
  return `${count(number)} responses, reward ${short(meanReward)}${right}`;
}

/** Mean reward within the band of its smallest and largest, over the index of the step, as the slider has it. */
function StepCurve({ steps, at, isEval }: { steps: readonly StepSummary[]; at: number; isEval: boolean }) {
  const values = steps.flatMap(({ minReward, maxReward, meanReward }) => [minReward, maxReward, meanReward]);
  const known = values.filter((value) => value !== null);
  if (steps.length < 2 || known.length === 0) return <div class="step-curve" />;
  const [low, high] = known.reduce(
    ([a, b], value) => [Math.min(a, value), Math.max(b, value)],
    [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY],
  );
  const ends = [high, low].map((value) => <span key={value}>{short(value)}</span>);
  const x = (i: number) => ((1000 * i) / (steps.length - 1)).toFixed(1);
  const y = (value: number | null) => (38 - (36 * ((value ?? low) - low)) / (high - low || 1)).toFixed(1);
  const line = (pick: (step: StepSummary) => number | null) =>
    thinned(steps).map((i) => `${x(i)} ${y(pick(steps[i] as StepSummary))}`);
  const band = [...line(({ maxReward }) => maxReward), ...line(({ minReward }) => minReward).reverse()];
  return (
    <>
      <div class="step-scale number" title="Largest and smallest reward of a response">
        {ends}
      </div>
      <svg
        class={isEval ? 'step-curve held-out' : 'step-curve'}
        viewBox="0 0 1000 40"
        preserveAspectRatio="none"
        role="img"
        aria-label={`Mean reward from ${short(steps[0]?.meanReward)} to ${short(steps.at(-1)?.meanReward)}`}
      >
        <path class="band" d={`M${band.join('L')}Z`} />
        <path class="mean" d={`M${line(({ meanReward }) => meanReward).join('L')}`} />
        {at >= 0 && <line x1={x(at)} x2={x(at)} y1="0" y2="40" />}
      </svg>
    </>
  );
}

/** At most a thousand points: more than there are pixels. */
function thinned(steps: readonly StepSummary[]): number[] {
  const every = Math.max(1, Math.ceil(steps.length / 1000));
  return steps.flatMap((_, i) => (i % every === 0 || i === steps.length - 1 ? [i] : []));
}
