/** What `attune explore` says of a dataset, as a page. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import type { Exploration, Job } from '../../../src/studio/api.ts';
import { kept } from '../../app/kept.ts';
import { toastFailure } from '../../app/toasts.ts';
import { JobView, useJob } from '../../parts/job.tsx';
import { Waiting } from '../../parts/page-parts.tsx';
import { get, post, Refused } from '../../wire/requests.ts';
import { Figures } from './figures.tsx';

/** Jobs of this studio by dataset, so that a reload finds what was begun. */
const begun = kept<Record<string, string>>('explorations', {});

export function Explore({ dataset, split }: { dataset: string; split: string | undefined }) {
  const key = `${dataset}#${split ?? ''}`;
  const id = useSignal<string | undefined>(undefined);
  const job = useJob(id.value);
  const begin = async () => {
    try {
      const made = await post<Job>('data/explore', { dataset, ...(split ? { split } : {}) });
      begun.value = { ...begun.peek(), [key]: made.id };
      id.value = made.id;
    } catch (error) {
      toastFailure(error);
    }
  };
  useEffect(() => {
    id.value = undefined;
    const known = begun.peek()[key];
    const start = async () => {
      if (known === undefined) return begin();
      try {
        await get<Job>(`jobs/${known}`);
        id.value = known;
      } catch (error) {
        // The studio was restarted and knows the job no more.
        if (error instanceof Refused) await begin();
      }
    };
    void start();
  }, [key]);
  if (!job) return <Waiting what="Looking at the dataset …" />;
  return (
    <div class="stack">
      {job.state === 'done' ? (
        <>
          <Figures exploration={job.result as Exploration} />
          <div>
            <button type="button" class="button slim" onClick={begin}>
              Look again
            </button>
          </div>
        </>
      ) : (
        <>
          <JobView job={job} />
          {job.state !== 'running' && (
            <div>
              <button type="button" class="button" onClick={begin}>
                Try again
              </button>
            </div>
          )}
        </>
      )}
    </div>
  );
}
