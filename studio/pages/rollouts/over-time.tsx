/** The responses to one prompt from the first step to the last, each with what changed against the one before. */
import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { PromptAnswer, PromptHistory, RunRow } from '../../../src/studio/api.ts';
import { setQuery } from '../../app/router.ts';
import { wordDifference } from '../../format/words.ts';
import { Num } from '../../parts/figures.tsx';
import { Segments, Waiting } from '../../parts/page-parts.tsx';
import { useResource } from '../../wire/resource.ts';
import { type Pick, picked } from './over-time-pick.ts';

interface OverTimeProps {
  run: RunRow;
  prompt: number;
  isEval: boolean;
  open: number;
}

const pageSize = 30;

export function OverTime({ run, prompt, isEval, open }: OverTimeProps) {
  const history = useResource<PromptHistory>(`runs/${run.id}/prompts/${prompt}`, { eval: isEval });
  const pick = useSignal<Pick>('first');
  const shown = useSignal(pageSize);
  const rows = useMemo(() => picked(history.data?.rows ?? [], pick.value), [history.data, pick.value]);
  if (!history.data) return <Waiting error={history.error} />;
  const steps = new Set(history.data.rows.map(({ step }) => step)).size;
  return (
    <div class="stack tight">
      <div class="spread">
        <Segments
          label="Which responses"
          value={pick.value}
          choices={[
            ['first', 'First'],
            ['best', 'Best of each step'],
            ['all', 'All'],
          ]}
          onChange={(value) => {
            pick.value = value;
          }}
        />
        <span class="small muted">
          {history.data.rows.length} responses at {steps === 1 ? 'one step' : `${steps} steps`}
        </span>
      </div>
      {steps === 1 && (
        <p class="muted small">
          This prompt was used at one step only. Held-out prompts come back at every evaluation.
        </p>
      )}
      {rows.slice(0, shown.value).map((row, i) => (
        <Response key={row.id} row={row} before={rows[i - 1]} isOpen={row.id === open} />
      ))}
      {rows.length > shown.value && (
        <button
          type="button"
          class="button"
          onClick={() => {
            shown.value += pageSize;
          }}
        >
          {rows.length - shown.value} more
        </button>
      )}
    </div>
  );
}

function Response({ row, before, isOpen }: { row: PromptAnswer; before: PromptAnswer | undefined; isOpen: boolean }) {
  const pieces = useMemo(
    () => (before ? wordDifference(before.completion, row.completion) : undefined),
    [before, row.completion],
  );
  return (
    <section class={isOpen ? 'moment is-open' : 'moment'}>
      <div class="spread small">
        <span class="row tight">
          <button type="button" class="link-button" onClick={() => setQuery({ open: row.id, view: 'text' })}>
            Step {row.step}
          </button>
          {row.correct !== undefined && (
            <span class={row.correct ? 'tag good' : 'tag bad'}>{row.correct ? 'right' : 'wrong'}</span>
          )}
        </span>
        <span class="muted">
          reward <Num value={row.reward} />
        </span>
      </div>
      <pre>
        {pieces
          ? pieces.map(({ kind, text }, i) =>
              kind === 'same' ? text : kind === 'new' ? <ins key={i}>{text}</ins> : <del key={i}>{text}</del>,
            )
          : row.completion || '(empty)'}
      </pre>
    </section>
  );
}
