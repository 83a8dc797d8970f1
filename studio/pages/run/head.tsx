/** The run's name and state, what can be done with it, and its headline. */
import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import type { ResumeAnswer, RunDetail, StopAnswer } from '../../../src/studio/api.ts';
import { go, href } from '../../app/router.ts';
import { toast, toastFailure } from '../../app/toasts.ts';
import { count, duration } from '../../format/numbers.ts';
import { DeleteDialog } from '../../parts/delete-dialog.tsx';
import { Explain } from '../../parts/explain.tsx';
import { Size, State, Time, Took } from '../../parts/figures.tsx';
import { Icon } from '../../parts/icons.tsx';
import type { Curve } from '../../wire/curves.ts';
import { post, session } from '../../wire/requests.ts';
import { headlineOf } from './headline.ts';

interface HeadProps {
  run: RunDetail;
  curves: ReadonlyMap<string, Curve> | undefined;
  onChange: () => void;
}

export function RunHead({ run, curves, onChange }: HeadProps) {
  const headline = curves && headlineOf(curves, run.kind);
  // Whoever watches a run sees nothing move, at its end neither: what it had while it went on keeps its place.
  const live = useRef(run.state === 'running').current;
  return (
    <header class="run-head">
      <div class="spread">
        <div class="row">
          <a href="#/runs" aria-label="All runs">
            ← Runs
          </a>
          <h1 class="wrap">{run.name}</h1>
          <State state={run.state} />
          {run.tags.map((tag) => (
            <span key={tag} class="tag note">
              {tag}
            </span>
          ))}
        </div>
        <Actions run={run} live={live} onChange={onChange} />
      </div>
      {run.reason && (
        <p class="signal warning" role="alert">
          <Icon name="warning" />
          <span class="wrap">{run.reason}</span>
        </p>
      )}
      <div class="card run-card">
        <p class={live ? 'headline live' : 'headline'}>
          {headline ? (
            <>
              <strong class={headline.metric.startsWith('eval/') ? 'held-out' : 'training'}>
                {`${headline.first} → ${headline.last}`}
              </strong>{' '}
              <span class="meaning">{[headline.meaning, headline.best].filter(Boolean).join(', ')}</span>
              {headline.certainty && <span class="certainty">{headline.certainty}</span>}
              <Explain term={headline.metric} />
            </>
          ) : (
            <span class="muted">{curves ? 'No two values yet to compare.' : '\u00a0'}</span>
          )}
        </p>
        <Facts run={run} live={live} />
      </div>
    </header>
  );
}

function Facts({ run, live }: { run: RunDetail; live: boolean }) {
  const left = secondsLeft(run);
  const facts: [string, preact.ComponentChildren][] = [
    ['Method', run.method ? `${run.kind} · ${run.method}` : run.kind],
    ['Model', run.model ?? '–'],
    ...((run.task ?? run.dataset)
      ? ([['Data', (run.task ?? run.dataset)?.replaceAll(',', ', ')]] as [string, string | undefined][])
      : []),
    ['Step', run.totalSteps ? `${count(run.step)} of ${count(run.totalSteps)}` : count(run.step)],
    ['Time', <Took key="took" seconds={run.seconds} />],
    ['Size', <Size key="size" value={run.bytes} />],
    ['Updated', <Time key="time" at={run.updated} />],
    ...(live ? ([['Left', left === undefined ? '–' : duration(left)]] as [string, string][]) : []),
  ];
  return (
    <>
      {(live || run.state === 'running') && run.totalSteps !== undefined && (
        <div
          class="progress"
          role="progressbar"
          aria-label="Steps taken"
          aria-valuenow={run.step}
          aria-valuemax={run.totalSteps}
        >
          <div style={{ width: `${Math.min(100, (100 * run.step) / run.totalSteps)}%` }} />
        </div>
      )}
      <dl class={live ? 'facts live' : 'facts'}>
        {facts.map(([name, value]) => (
          <div key={name} class={{ Size: 'wide-only', Model: 'wide-only', Data: 'fact-data' }[name]}>
            <dt>{name}</dt>
            <dd class="wrap">{value}</dd>
          </div>
        ))}
        {run.parent && (
          <div>
            <dt>Begun from</dt>
            <dd>
              <a href={href(['runs', run.parent])}>another run</a>
            </dd>
          </div>
        )}
      </dl>
    </>
  );
}

/** A link that leads nowhere yet keeps its place. */
const offered = (to: string | undefined, why: string) =>
  to === undefined ? { 'aria-disabled': true, title: why } : { href: to };

function secondsLeft({ state, seconds, step, totalSteps }: RunDetail): number | undefined {
  if (state !== 'running' || !seconds || !totalSteps || step < 2) return undefined;
  return (seconds / (step - 1)) * (totalSteps - step);
}

function Actions({ run, live, onChange }: { run: RunDetail; live: boolean; onChange: () => void }) {
  const deleting = useSignal(false);
  const asked = useSignal<'stop' | 'resume' | undefined>(undefined);
  // What was asked for takes a few seconds to show: a step to finish, a process to start.
  useEffect(() => {
    asked.value = undefined;
  }, [run.state, asked]);
  const canChange = session.value?.readOnly !== true;
  const newest = run.snapshots.at(-1);
  const stop = async () => {
    asked.value = 'stop';
    try {
      await post<StopAnswer>(`runs/${run.id}/stop`);
      toast('Asked to stop: it finishes its step, saves and ends.');
    } catch (error) {
      toastFailure(error);
      asked.value = undefined;
    }
    onChange();
  };
  const resume = async () => {
    asked.value = 'resume';
    try {
      const { runId } = await post<ResumeAnswer>(`runs/${run.id}/resume`);
      toast('Resumed: it goes on from its newest checkpoint.');
      if (runId && runId !== run.id) go(['runs', runId]);
    } catch (error) {
      toastFailure(error);
    }
    // The answer came when its process wrote the run, or was gone.
    asked.value = undefined;
    onChange();
  };
  return (
    <div class="row tight run-actions">
      {run.hasRollouts && (
        <a class="button" href={href(['rollouts', run.id])}>
          <Icon name="rollouts" /> Rollouts
        </a>
      )}
      <a class="button" href={href(['runs'], { with: run.id })} title="Lay other runs over this one">
        <Icon name="runs" /> Compare
      </a>
      {session.value?.hasChat && (newest || live) && (
        <a class="button" {...offered(newest && href(['chat'], { model: newest.model }), 'No checkpoint is saved yet')}>
          <Icon name="chat" /> Chat
        </a>
      )}
      {(run.hasReport || live) && (
        <a
          class="button"
          target="_blank"
          rel="noopener"
          {...offered(run.hasReport ? `/api/runs/${run.id}/report` : undefined, 'It is written at the end')}
        >
          Report
        </a>
      )}
      {canChange && run.canStop && (
        <button type="button" class="button end" disabled={asked.value !== undefined} onClick={stop}>
          <Icon name="stop" /> {asked.value === 'stop' ? 'Stopping …' : 'Stop'}
        </button>
      )}
      {canChange && run.canResume && (
        <button type="button" class="button primary" disabled={asked.value !== undefined} onClick={resume}>
          <Icon name="train" /> {asked.value === 'resume' ? 'Resuming …' : 'Resume'}
        </button>
      )}
      {canChange && run.state !== 'running' && (
        <button
          type="button"
          class="button danger end"
          onClick={() => {
            deleting.value = true;
          }}
        >
          <Icon name="bin" /> Delete …
        </button>
      )}
      {deleting.value && (
        <DeleteDialog
          ask={{ ids: [run.id] }}
          onClose={() => {
            deleting.value = false;
          }}
          onDone={() => go(['runs'])}
        />
      )}
    </div>
  );
}
