/**
 * `npm run bench -- dist [reward] [grpo] [--ranks 2] [--steps 8] [--cores 0,1] [--detail]`: the same training by one process of one thread and by
 * several, a reward model's step and a GRPO step on the 15M shape. All processes live side by side and take turns, a step each, so that
 * a machine whose speed changes from minute to minute is as fast for one as for the others; the readings are medians over the turns.
 *
 * With `--cores` every process stays on one core: ranks on one each, and one process after another on each of them. The cores of a
 * shared host differ in speed from second to second, by a half and more, and ranks that share a step end with the slower one:
 * `against_slower` is one process on the slower core over the ranks, `times_as_fast` the mean of one process on each over the ranks.
 *
 * `ceiling` is what the machine gives: as many processes at once that have nothing to do with each other, each with a rank's share of
 * the work, until the last of them ends; `share_of_ceiling` is how much of that the ranks have. `by_processor` is the processor's
 * seconds of one process over those of the busiest rank: what cores that nobody disturbs would give if no rank ever waited.
 * Real-time priority is no good for this: Linux stops such a process for 50 ms of every second. Also how
 * much of a step its collectives take, and how much of the exchange of gradients is hidden behind backward, by the trace of rank 0
 * (`--trace folder` keeps it). `--detail` writes every step of every process to stderr: its parts, and what of it the thread that
 * computes ran.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { freePort } from '../src/dist/meeting.ts';
import { joinWorld } from '../src/dist/world.ts';
import { initModel, saveModel } from '../src/models/index.ts';
import { Random } from '../src/random.ts';
import type { TrainStep } from '../src/trainers/loop/task.ts';
import { trainPolicy } from '../src/trainers/policy/policy.ts';
import { trainReward } from '../src/trainers/reward/reward.ts';
import type { Reading } from './run.ts';
import { LLAMA_15M } from './support/shapes.ts';

/** What a process says of each of its steps. */
interface Step {
  seconds: number;
  /** Seconds of it in which a collective ran on this rank. */
  collectives: number;
  /** Seconds of the processor, of all threads of the process. */
  processor: number;
  /** Of these, the thread's that computes: the rest of the step it waited. */
  computing: number;
  /** A policy's parts of the step, in seconds. */
  parts: Record<string, number>;
}

interface Work {
  kind: string;
  folder: string;
  steps: number;
  /** Trains with this part of the step: 2 for a half. */
  share: number;
}

const tokenizer = fileURLToPath(new URL('../models/tiny', import.meta.url));
const words = ['red', 'blue', 'seven', 'answer', 'because', 'sum', 'the', 'of'];
const text = (key: string | number, length: number) => {
  const random = new Random('text', key);
  return Array.from({ length }, () => random.pick(words)).join(' ');
};

/** Trains, a step for each line that it is given, and says how long it took. */
async function train({ kind, folder, steps, share }: Work): Promise<void> {
  const world = await joinWorld();
  const shared = {
    model: join(folder, 'model'),
    tokenizer,
    outputDir: join(folder, 'runs', process.env.MASTER_PORT as string),
    maxSteps: steps,
    dtype: 'float32' as const,
    evalSteps: -1,
    saveSteps: -1,
    saveModel: false,
    reportTo: ['none' as const],
    gradAccum: 4 / share,
    lr: 1e-5,
  };
  const options = { cache: false, run: { curves: false } } as const;
  const pairs = Array.from({ length: 64 }, (_, i) => ({
    prompt: text(`p${i}`, 10),
    chosen: text(`c${i}`, 40 + (i % 20)),
    rejected: text(`r${i}`, 30 + (i % 30)),
  }));
  using run =
    kind === 'reward'
      ? await trainReward(
          { ...shared, dataset: pairs, batchSize: 2, validationSplit: 0, analysisSamples: 0, epochs: 9 },
          options,
        ).open()
      : await trainPolicy(
          {
            ...shared,
            dataset: pairs.map(({ prompt }) => ({ prompt })),
            algorithm: 'grpo',
            promptFormat: 'raw',
            batchSize: 2,
            groupSize: 8,
            maxNewTokens: 32,
            evalNumPrompts: 0,
          },
          { ...options, rewards: [(items) => items.map(({ response }) => response.length % 7)] },
        ).open();
  const group = world.groupFor('cpu');
  const turns = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const training = run[Symbol.asyncIterator]();
  for (let step = 0; step < steps; step++) {
    await turns.next();
    const before = group?.busySeconds ?? 0;
    const [used, ran] = [process.cpuUsage(), process.threadCpuUsage()];
    const { value } = await training.next();
    const { metrics } = value as TrainStep;
    const collectives = (group?.busySeconds ?? 0) - before;
    const parts = Object.fromEntries(
      ['rollout', 'prepare', 'train'].flatMap((name) => {
        const spent = metrics[`train/${name}_seconds`];
        return spent === undefined ? [] : [[name, spent]];
      }),
    );
    const seconds = metrics['train/step_time'] as number;
    const [processor, computing] = [process.cpuUsage(used), process.threadCpuUsage(ran)].map(
      ({ user, system }) => (user + system) / 1e6,
    ) as [number, number];
    const step: Step = { seconds, collectives, processor, computing, parts };
    console.log(JSON.stringify(step));
  }
}

/** A process that trains a step whenever it is told to; on one core, where one is given. */
class Trainer {
  readonly #child: ChildProcess;
  readonly #said: AsyncIterator<string>;

  constructor(work: Work, env: Record<string, string>, core: string | undefined) {
    const args = [import.meta.filename, 'rank', JSON.stringify(work)];
    const pinned = core === undefined ? [] : ['taskset', '-c', core];
    const [command, ...rest] = [...pinned, process.execPath, ...process.execArgv, ...args];
    this.#child = spawn(command as string, rest, {
      env: { ...process.env, ...env },
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    const lines = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream });
    this.#said = lines[Symbol.asyncIterator]();
  }

  async step(): Promise<Step> {
    this.#child.stdin?.write('step\n');
    const { value, done } = await this.#said.next();
    if (done) throw new Error('a process of the benchmark has ended early');
    return JSON.parse(value) as Step;
  }

  async end(): Promise<void> {
    if (this.#child.exitCode === null) await once(this.#child, 'close');
  }
}

/** All ranks of one world, on a core each where those are given. */
async function worldOf(work: Work, ranks: number, cores: readonly (string | undefined)[], trace?: string) {
  const port = String(await freePort());
  const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, ATTUNE_THREADS: '1' };
  const more: Record<string, string> = trace === undefined ? {} : { ATTUNE_DIST_TRACE: trace };
  return Array.from({ length: ranks }, (_, rank) => {
    const place = { RANK: `${rank}`, WORLD_SIZE: `${ranks}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${ranks}` };
    return new Trainer(work, { ...place, ...meeting, ...more }, cores[rank]);
  });
}

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;
const median = (values: readonly number[]) => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = (sorted.length - 1) / 2;
  return ((sorted[Math.floor(middle)] as number) + (sorted[Math.ceil(middle)] as number)) / 2;
};

/** A step of all these processes at once. */
const together = (trainers: readonly Trainer[]) => Promise.all(trainers.map((trainer) => trainer.step()));

async function inTurn(trainers: readonly Trainer[]): Promise<Step[]> {
  const steps: Step[] = [];
  for (const trainer of trainers) steps.push(await trainer.step());
  return steps;
}

/** A step by one process (on each core), by processes apart, and by ranks together. */
interface Turn {
  one: Step[];
  apart: Step[];
  many: Step[];
}

const seconds = (steps: readonly Step[]) => steps.map((step) => step.seconds);
const processor = (steps: readonly Step[]) => steps.map((step) => step.processor);

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values, positionals } = parseArgs({
    args,
    allowPositionals: true,
    options: {
      ranks: { type: 'string', default: '2' },
      steps: { type: 'string', default: '8' },
      cores: { type: 'string' },
      trace: { type: 'string' },
      detail: { type: 'boolean', default: false },
    },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-bench-dist-'));
  mkdirSync(join(folder, 'model'));
  using model = initModel(LLAMA_15M, { seed: 0 });
  saveModel(model, join(folder, 'model'));
  const ranks = Number(values.ranks);
  for (const kind of positionals.length > 0 ? positionals : ['reward', 'grpo']) {
    // The first turn warms up.
    const work = { kind, folder, steps: Number(values.steps) + 1, share: 1 };
    const trace = join(values.trace ?? folder, `trace-${kind}`);
    const cores: (string | undefined)[] = values.cores?.split(',') ?? [undefined];
    const alone = async (count: number, share: number) => {
      const worlds = Array.from({ length: count }, (_, i) => worldOf({ ...work, share }, 1, [cores[i % cores.length]]));
      return (await Promise.all(worlds)).flat();
    };
    const one = await alone(cores.length, 1);
    const apart = await alone(ranks, ranks);
    const many = await worldOf(
      work,
      ranks,
      Array.from({ length: ranks }, (_, rank) => cores[rank % cores.length]),
      trace,
    );
    const turns: Turn[] = [];
    for (let turn = 0; turn < work.steps; turn++) {
      // Whoever comes later must not always be the same: the host may grow slower or faster all along.
      const steps: Turn = { one: await inTurn(one), apart: [], many: [] };
      for (const kind of turn % 2 === 0 ? (['apart', 'many'] as const) : (['many', 'apart'] as const))
        steps[kind] = await together({ apart, many }[kind]);
      if (turn > 0) turns.push(steps);
      if (values.detail) console.error(detailOf(steps));
    }
    await Promise.all([...one, ...apart, ...many].map((trainer) => trainer.end()));
    const over = (reading: (turn: Turn) => number) => median(turns.map(reading));
    yield {
      name: `${kind}, ${ranks} processes of one thread`,
      one_s: over(({ one }) => mean(seconds(one))),
      many_s: over(({ many }) => mean(seconds(many))),
      times_as_fast: over(({ one, many }) => mean(seconds(one)) / mean(seconds(many))),
      against_slower: over(({ one, many }) => Math.max(...seconds(one)) / mean(seconds(many))),
      ceiling: over(({ one, apart }) => mean(seconds(one)) / Math.max(...seconds(apart))),
      share_of_ceiling: over(({ apart, many }) => Math.max(...seconds(apart)) / mean(seconds(many))),
      by_processor: over(({ one, many }) => Math.max(...processor(one)) / Math.max(...processor(many))),
      collectives_share: over(({ many }) => mean(many.map(({ collectives }) => collectives)) / mean(seconds(many))),
      hidden_share: hiddenShare(join(trace, 'rank-0.json')),
    };
  }
  rmSync(folder, { recursive: true });
}

/** Milliseconds of every process's step. */
function detailOf(turn: Turn): string {
  const ms = (value: number) => (1000 * value).toFixed(0);
  const told = ({ seconds, computing, processor, collectives, parts }: Step) =>
    [
      `${ms(seconds)} (computing ${ms(computing)}, processor ${ms(processor)}, collectives ${ms(collectives)}`,
      ...Object.entries(parts).map(([name, value]) => `${name} ${ms(value)}`),
    ].join(', ');
  return Object.entries(turn)
    .flatMap(([name, steps]: [string, Step[]]) => steps.map((step) => `${name.padEnd(6)}${told(step)})`))
    .join('\n');
}

interface TraceEvent {
  name: string;
  cat: string;
  ts: number;
  dur: number;
  args?: { bytes: number };
}

/** The share of the time in which gradients travelled that lies within the computing of micro-batches. */
function hiddenShare(path: string): number {
  const { traceEvents } = JSON.parse(readFileSync(path, 'utf8')) as { traceEvents: TraceEvent[] };
  const computing = traceEvents.filter(({ name }) => name === 'micro-batch');
  // The small ones are counts and metrics.
  const exchanged = traceEvents.filter(({ cat, args }) => cat === 'collectives' && (args?.bytes ?? 0) > 100_000);
  const common = (a: TraceEvent, b: TraceEvent) =>
    Math.max(0, Math.min(a.ts + a.dur, b.ts + b.dur) - Math.max(a.ts, b.ts));
  const hidden = exchanged.reduce((sum, one) => sum + computing.reduce((all, other) => all + common(one, other), 0), 0);
  return hidden / exchanged.reduce((sum, { dur }) => sum + dur, 0);
}

if (process.argv[2] === 'rank') {
  await train(JSON.parse(process.argv[3] as string) as Work);
  process.exit(0);
}
