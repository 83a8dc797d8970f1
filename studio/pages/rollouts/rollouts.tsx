/** Rollouts of a run: found by search, filters and step; one opened beside the table, to the token. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { RunRow, StepsAnswer } from '../../../src/studio/api.ts';
import { useKeys } from '../../app/keys.ts';
import { go, href, route, setQuery } from '../../app/router.ts';
import { Segments, Waiting } from '../../parts/page-parts.tsx';
import { useResource } from '../../wire/resource.ts';
import { Detail } from './detail.tsx';
import { FilterBar } from './filter-bar.tsx';
import { nearestStep, noFilters, runToShow } from './filters.ts';
import { NoRollouts, RunChoice } from './run-choice.tsx';
import './rollouts.css';
import './tokens.css';
import { RolloutsTable } from './rollouts-table.tsx';
import { StepSlider } from './step-slider.tsx';
import { useRollouts } from './use-rollouts.ts';
import { WhatIf } from './what-if.tsx';

export default function Rollouts() {
  const runs = useResource<RunRow[]>('runs', {}, { every: 10_000 });
  const id = route.value.path[1];
  const newest = runToShow(runs.data ?? []);
  useEffect(() => {
    if (id === undefined && newest) go(['rollouts', newest.id]);
  }, [id, newest]);
  if (!runs.data) return <Waiting error={runs.error} />;
  if (!newest) return <NoRollouts />;
  const run = runs.data.find((each) => each.id === id);
  if (id !== undefined && !run) return <Waiting error={new Error('This run is not there any more.')} />;
  return run ? <RunRollouts key={run.id} run={run} runs={runs.data} /> : <Waiting />;
}

function RunRollouts({ run, runs }: { run: RunRow; runs: readonly RunRow[] }) {
  const { query } = route.value;
  const isEval = query.eval === '1';
  const live = run.state === 'running';
  const steps = useResource<StepsAnswer>(`runs/${run.id}/steps`, { eval: isEval }, { every: live ? 5000 : undefined });
  const total = steps.data?.steps.reduce((sum, { count }) => sum + count, 0) ?? 0;
  const seen = useSignal(total);
  const rollouts = useRollouts(run.id, query, seen.value);
  const search = useRef<HTMLInputElement>(null);
  const open = query.open === undefined ? undefined : Number(query.open);
  const close = () => setQuery({ open: undefined, view: undefined });

  // A point of a curve may lie between the steps that have rollouts.
  const step = query.step === undefined ? undefined : Number(query.step);
  useEffect(() => {
    const known = steps.data?.steps.map((each) => each.step);
    // The steps of held-out responses are others than those of training: what is still on screen may be of the other side.
    if (!steps.isCurrent || step === undefined || !known || known.length === 0 || known.includes(step)) return;
    setQuery({ step: nearestStep(known, step) });
  }, [step, steps.data]);
  useEffect(() => {
    if (seen.peek() === 0) seen.value = total;
  }, [total, seen]);

  const move = (by: number) => {
    const list = steps.data?.steps ?? [];
    const at = list.findIndex((each) => each.step === step);
    const next = list[at < 0 ? (by > 0 ? 0 : list.length - 1) : Math.max(0, Math.min(list.length - 1, at + by))];
    if (next) setQuery({ step: next.step });
  };
  useKeys('Rollouts', [
    { keys: '/', what: 'search', run: () => search.current?.focus() },
    { keys: '[', what: 'step before', run: () => move(-1) },
    { keys: ']', what: 'step after', run: () => move(1) },
    { keys: '\\', what: 'all steps', run: () => setQuery({ step: undefined }) },
    { keys: 'x', what: 'no filters', run: () => setQuery(noFilters) },
    { keys: 'u', what: 'the run', run: () => go(['runs', run.id]) },
    { keys: 'Escape', what: 'close the response', run: close },
  ]);
  const whatIf = query.view === 'what-if' && open === undefined;
  const isSplit = open !== undefined || whatIf;
  return (
    <div class="page rollouts-page">
      <div class="spread rollouts-head">
        <div class="row">
          <h1>Rollouts</h1>
          <RunChoice run={run} runs={runs} />
          <Segments
            label="Which prompts"
            value={isEval ? 'eval' : 'train'}
            choices={[
              ['train', 'Training'],
              ['eval', 'Held-out'],
            ]}
            onChange={(side) => setQuery({ ...noFilters, eval: side === 'eval', open: undefined, view: undefined })}
          />
        </div>
        <div class="row tight">
          {live && (
            // It has its place before there is something new, so that nothing moves when there is.
            <button
              type="button"
              class={total > seen.value && seen.value > 0 ? 'button slim fresh' : 'button slim fresh none'}
              onClick={() => {
                seen.value = total;
              }}
            >
              {total - seen.value} new: show
            </button>
          )}
          <a class="button slim" href={href(['runs', run.id])}>
            The run’s curves
          </a>
        </div>
      </div>
      <div class={isSplit ? 'rollouts-split open' : 'rollouts-split'}>
        <div class="rollouts-list">
          <StepSlider
            steps={steps.data?.steps ?? []}
            step={step}
            isEval={isEval}
            canWhatIf={run.hasTokens && !isEval}
          />
          <FilterBar answer={rollouts.answer} search={search} isEval={isEval} />
          <RolloutsTable rollouts={rollouts} open={open} isEval={isEval} isNarrow={isSplit} isRunning={live} />
        </div>
        {isSplit && (
          <div class="rollouts-detail">
            {open !== undefined ? (
              <Detail run={run} id={open} isEval={isEval} onClose={close} />
            ) : (
              <WhatIf run={run} step={step} onClose={close} />
            )}
          </div>
        )}
      </div>
    </div>
  );
}
