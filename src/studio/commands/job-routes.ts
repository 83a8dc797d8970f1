/** Routes of jobs. */
import type { Job } from '../api/models.ts';
import { type Asked, get, post, type Route } from '../http/router.ts';
import type { Jobs } from './jobs.ts';

export function jobRoutes(jobs: Jobs): Route[] {
  const jobOf = ({ params }: Asked) => jobs.find(params.id as string);
  return [
    get('/api/jobs', () => jobs.list()),
    get('/api/jobs/:id', (asked) => jobOf(asked).job),
    get('/api/jobs/:id/events', (asked) => follow(jobs, jobOf(asked).job, asked)),
    post('/api/jobs/:id/cancel', (asked) => {
      const { job, cancel } = jobOf(asked);
      cancel?.();
      return job;
    }),
  ];
}

/** The whole job at once and at every change, until it has ended. */
async function follow(jobs: Jobs, job: Job, { stream: open, gone }: Asked): Promise<void> {
  const stream = open();
  let changed = true;
  let wake = () => {};
  const stop = jobs.watch(job.id, () => {
    changed = true;
    wake();
  });
  gone.addEventListener('abort', () => wake());
  try {
    while (stream.open && !gone.aborted) {
      if (changed) {
        changed = false;
        await stream.send('job', job);
        if (job.state !== 'running' && !changed) break;
        continue;
      }
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
    }
  } finally {
    stop();
    stream.end();
  }
}
