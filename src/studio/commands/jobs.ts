/**
 * Work that takes a while: a process of `attune` or a task in this process, with its lines, its progress and its end.
 * Jobs live in memory; what they make lies in files. A training outlives the studio, other processes end with it.
 */
import { randomBytes } from 'node:crypto';
import { EventEmitter } from 'node:events';
import { ApiError } from '../../serve/api-error.ts';
import type { Job } from '../api/models.ts';

const mostJobs = 100;
const mostLines = 200;

export interface Begun {
  kind: Job['kind'];
  title: string;
  commandLine?: string;
  /** Asks it to end. */
  cancel?: () => void;
}

/** The side of a job that does the work. */
export class JobHandle {
  readonly job: Job;
  readonly cancel: (() => void) | undefined;
  readonly #changed: () => void;

  constructor(begun: Begun, changed: () => void) {
    const { kind, title, commandLine } = begun;
    this.job = {
      id: randomBytes(8).toString('hex'),
      kind,
      title,
      state: 'running',
      started: Date.now(),
      lines: [],
      ...(commandLine === undefined ? {} : { commandLine }),
    };
    this.cancel = begun.cancel;
    this.#changed = changed;
  }

  line(text: string): void {
    const clean = text.trimEnd();
    if (clean === '') return;
    const progress = progressIn(clean);
    if (progress !== undefined) this.job.progress = progress;
    this.job.lines.push(clean);
    if (this.job.lines.length > mostLines) this.job.lines.shift();
    this.#changed();
  }

  progress(label: string, done: number, total?: number): void {
    this.job.progress = { label, done, ...(total === undefined ? {} : { total }) };
    this.#changed();
  }

  /** What is there to use while it goes on. */
  offer(result: unknown): void {
    this.job.result = result;
    this.#changed();
  }

  found(runId: string): void {
    this.job.runId = runId;
    this.#changed();
  }

  end(state: Exclude<Job['state'], 'running'>, more: Pick<Job, 'error' | 'result'> = {}): void {
    if (this.job.state !== 'running') return;
    Object.assign(this.job, { state, ended: Date.now(), ...more });
    this.#changed();
  }
}

const factors: Readonly<Record<string, number>> = { '': 1, k: 1e3, M: 1e6, G: 1e9 };

/** `train  50%  3/6 steps` and `sampling  20%  20.4k/98.3k tokens`, as consoles show it. */
function progressIn(line: string): Job['progress'] {
  const found = /^(.*?)\s+\d+%\s+([\d.]+)([kMG]?)\/([\d.]+)([kMG]?)(?:\s|$)/.exec(line);
  if (found === null) return undefined;
  const [, label = '', done, doneUnit = '', total, totalUnit = ''] = found;
  const numbers = [Number(done) * (factors[doneUnit] ?? 1), Number(total) * (factors[totalUnit] ?? 1)] as const;
  return numbers.every(Number.isFinite) ? { label: label.trim(), done: numbers[0], total: numbers[1] } : undefined;
}

export class Jobs {
  readonly #handles = new Map<string, JobHandle>();
  readonly #events = new EventEmitter().setMaxListeners(0);

  begin(begun: Begun): JobHandle {
    const handle = new JobHandle(begun, () => this.#events.emit(handle.job.id, handle.job));
    this.#handles.set(handle.job.id, handle);
    for (const [id, { job }] of this.#handles) {
      if (this.#handles.size <= mostJobs) break;
      if (job.state !== 'running') this.#handles.delete(id);
    }
    return handle;
  }

  /** Newest first. */
  list(): Job[] {
    return [...this.#handles.values()].map(({ job }) => job).reverse();
  }

  find(id: string): JobHandle {
    const found = this.#handles.get(id);
    if (found === undefined) throw new ApiError(404, 'There is no such job.', { code: 'not_found' });
    return found;
  }

  /** Calls back at every change; returns what ends it. */
  watch(id: string, onChange: (job: Job) => void): () => void {
    this.#events.on(id, onChange);
    return () => this.#events.off(id, onChange);
  }
}
