/** A stored step recomputed under another algorithm or option, beside what was recorded. */
import { type Signal, useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { RolloutDetail, RunDetail, RunRow, WhatIfAnswer, WhatIfRequest } from '../../../src/studio/api.ts';
import { isSmall } from '../../app/theme.ts';
import { Icon } from '../../parts/icons.tsx';
import { Waiting } from '../../parts/page-parts.tsx';
import { post, session } from '../../wire/requests.ts';
import { useResource } from '../../wire/resource.ts';
import { actingOptions, changedOptions, flagOf, written } from './what-if-options.ts';
import { WhatIfResult } from './what-if-result.tsx';

interface WhatIfProps {
  run: RunRow;
  step: number | undefined;
  rollout?: RolloutDetail;
  onClose?: () => void;
}

export function WhatIf({ run, step, rollout, onClose }: WhatIfProps) {
  const detail = useResource<RunDetail>(`runs/${run.id}`);
  const algorithm = useSignal('');
  const checkpoint = useSignal('');
  const typed = useSignal<Record<string, string>>({});
  const answer = useSignal<WhatIfAnswer | undefined>(undefined);
  const error = useSignal<Error | undefined>(undefined);
  const busy = useSignal(false);
  const turn = useRef(0);
  const compute = async () => {
    if (step === undefined) return;
    const mine = ++turn.current;
    busy.value = true;
    const request: WhatIfRequest = {
      step,
      ...(algorithm.value === '' ? {} : { algorithm: algorithm.value }),
      ...(checkpoint.value === '' ? {} : { checkpoint: checkpoint.value }),
      options: changedOptions(typed.value, answer.value?.changed.options ?? {}),
    };
    try {
      const read = await post<WhatIfAnswer>(`runs/${run.id}/whatif`, request);
      if (mine !== turn.current) return;
      answer.value = read;
      error.value = undefined;
    } catch (failure) {
      if (mine === turn.current) error.value = failure as Error;
    }
    if (mine === turn.current) busy.value = false;
  };
  // As recorded first: it says which algorithms and options there are.
  useEffect(() => void compute(), [step, algorithm.value, checkpoint.value]);
  const head = onClose && (
    <div class="spread">
      <h2>What if: step {step ?? '–'}</h2>
      <button type="button" class="button quiet slim" aria-label="Close" onClick={onClose}>
        <Icon name="close" />
      </button>
    </div>
  );
  const body = (
    <>
      <form
        class="what-if"
        onSubmit={(event) => {
          event.preventDefault();
          void compute();
        }}
      >
        <label class="field">
          <span class="name">Algorithm</span>
          <select
            value={algorithm.value}
            onChange={(event) => {
              typed.value = {};
              algorithm.value = event.currentTarget.value;
            }}
          >
            <option value="">{answer.value ? `${answer.value.recorded.algorithm} (recorded)` : 'as recorded'}</option>
            {answer.value?.algorithms
              .filter((name) => name !== answer.value?.recorded.algorithm)
              .map((name) => (
                <option key={name} value={name}>
                  {name}
                </option>
              ))}
          </select>
        </label>
        <label class="field">
          <span class="name">Weights</span>
          <select
            value={checkpoint.value}
            onChange={(event) => {
              checkpoint.value = event.currentTarget.value;
            }}
          >
            <option value="">as sampled (ratio 1)</option>
            {detail.data?.snapshots.map(({ name }) => (
              <option key={name} value={name}>
                {name}
              </option>
            ))}
          </select>
        </label>
        {answer.value && (
          <details class="what-if-options" open={!isSmall.value}>
            <summary class="small muted">Options</summary>
            <Options answer={answer.value} typed={typed} />
          </details>
        )}
        <button type="submit" class="button primary" disabled={busy.value || step === undefined}>
          {busy.value ? 'Computing …' : 'Recompute'}
        </button>
      </form>
      {error.value && (
        <p class="fault" role="alert">
          {error.value.message}
        </p>
      )}
      {answer.value ? (
        <WhatIfResult answer={answer.value} rollout={rollout} />
      ) : (
        !error.value && <Waiting what={step === undefined ? 'Pick a step first.' : 'Recomputing the step …'} />
      )}
    </>
  );
  if (session.value && !session.value.hasWhatIf)
    return <p class="muted">This server cannot recompute steps. Start it with attune studio.</p>;
  return onClose ? (
    <article class="detail card">
      {head}
      {body}
    </article>
  ) : (
    <div class="stack tight">{body}</div>
  );
}

function Options({ answer, typed }: { answer: WhatIfAnswer; typed: Signal<Record<string, string>> }) {
  const { recorded, changed } = answer;
  return (
    <div class="what-if-fields">
      {actingOptions(changed.options).map(([name, value]) => (
        <label key={name} class="field">
          <span class="name mono cut" title={flagOf(name)}>
            {flagOf(name)}
          </span>
          <input
            type="text"
            spellcheck={false}
            placeholder={written(value)}
            value={typed.value[name] ?? ''}
            onInput={(event) => {
              typed.value = { ...typed.value, [name]: event.currentTarget.value };
            }}
          />
          <span class="small muted cut">
            {name in recorded.options ? `recorded ${written(recorded.options[name])}` : `not of ${recorded.algorithm}`}
          </span>
        </label>
      ))}
    </div>
  );
}
