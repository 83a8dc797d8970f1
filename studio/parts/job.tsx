/** A piece of work that takes a while: followed as it goes, shown with its last lines. */
import { useState } from 'preact/hooks';
import type { Job, JobEvents } from '../../src/studio/api.ts';
import { toastFailure } from '../app/toasts.ts';
import { count, duration } from '../format/numbers.ts';
import { useEvents } from '../wire/events.ts';
import { post } from '../wire/requests.ts';
import { useResource } from '../wire/resource.ts';
import { Command } from './page-parts.tsx';

/** The job as it is now; undefined until the first answer, and without an id. */
export function useJob(id: string | undefined): Job | undefined {
  const first = useResource<Job>(`jobs/${id ?? ''}`, {}, { when: id !== undefined });
  const [newest, setNewest] = useState<Job>();
  const isOver = newest?.id === id && newest?.state !== 'running';
  useEvents<JobEvents>(`jobs/${id ?? ''}/events`, () => ({}), { job: setNewest }, id !== undefined && !isOver);
  if (id === undefined) return undefined;
  return newest?.id === id ? newest : first.data;
}

/** A server has no end of its own: it answers, or it was stopped. */
function wordFor({ kind, state, result }: Job): string {
  if (kind !== 'serve') return state;
  if (state === 'running') return result === undefined ? 'starting' : 'answers';
  return state === 'failed' ? 'failed' : 'stopped';
}

function toneOf(job: Job): string {
  const word = wordFor(job);
  if (word === 'done' || word === 'answers') return 'tag good';
  if (word === 'stopped') return 'tag';
  return job.state === 'running' ? 'tag note' : 'tag bad';
}

export function JobView({ job }: { job: Job }) {
  const { progress, state } = job;
  const share = progress?.total ? progress.done / progress.total : undefined;
  const url = state === 'running' ? (job.result as { url?: string } | undefined)?.url : undefined;
  const cancel = async () => {
    try {
      await post(`jobs/${job.id}/cancel`);
    } catch (error) {
      toastFailure(error);
    }
  };
  return (
    <section class="job stack tight" aria-label={job.title} aria-busy={state === 'running'}>
      <div class="spread small">
        <span class="row tight">
          <b>{job.title}</b>
          <span class={toneOf(job)}>{wordFor(job)}</span>
        </span>
        <span class="row tight muted number">
          {progress &&
            `${progress.label} ${count(progress.done)}${progress.total ? ` of ${count(progress.total)}` : ''}`}
          {job.ended !== undefined && duration((job.ended - job.started) / 1000)}
          {state === 'running' && (
            <button type="button" class="button slim" onClick={cancel}>
              {job.kind === 'serve' ? 'Stop' : 'Cancel'}
            </button>
          )}
        </span>
      </div>
      {url !== undefined && <Command text={url} />}
      {share !== undefined && state === 'running' && (
        <div class="progress">
          <div style={{ width: `${100 * share}%` }} />
        </div>
      )}
      {job.error && (
        <p class="fault wrap" role="alert">
          {job.error}
        </p>
      )}
      {job.lines.length > 0 && state !== 'done' && (
        <pre class="small muted job-lines">{job.lines.slice(-6).join('\n')}</pre>
      )}
    </section>
  );
}
