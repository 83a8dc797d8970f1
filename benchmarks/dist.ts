/**
 * `npm run bench -- dist [--ranks 2] [--steps 4]`: the same training by one process of one thread and by several, a reward
 * model's step and a GRPO step on the 15M shape; how much of a step its collectives take, and how much of the exchange of
 * gradients is hidden behind backward, by the trace of rank 0 (`--trace folder` keeps it); and what a world of one costs.
 */
import { spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { freePort } from '../src/dist/launch.ts';
import { joinWorld, soloWorld } from '../src/dist/world.ts';
import { initModel, saveModel } from '../src/models/index.ts';
import { AdamW } from '../src/nn/index.ts';
import { Random } from '../src/random.ts';
import { keep, zeros } from '../src/tensor/index.ts';
import { GradientSums } from '../src/trainers/loop/update.ts';
import { trainPolicy } from '../src/trainers/policy/policy.ts';
import { trainReward } from '../src/trainers/reward/reward.ts';
import type { Reading } from './run.ts';
import { LLAMA_15M } from './shapes.ts';

interface Timed {
  /** Seconds of each step but the first. */
  steps: number[];
  /** Share of those in which a collective ran on this rank. */
  collectives: number;
}

const tokenizer = fileURLToPath(new URL('../models/tiny', import.meta.url));
const words = ['red', 'blue', 'seven', 'answer', 'because', 'sum', 'the', 'of'];
const text = (key: string | number, length: number) => {
  const random = new Random('text', key);
  return Array.from({ length }, () => random.pick(words)).join(' ');
};

async function train(kind: string, folder: string, steps: number): Promise<Timed> {
  const world = await joinWorld();
  const shared = {
    model: join(folder, 'model'),
    tokenizer,
    outputDir: join(folder, 'runs'),
    maxSteps: steps + 1,
    dtype: 'float32' as const,
    evalSteps: -1,
    saveSteps: -1,
    saveModel: false,
    reportTo: ['none' as const],
    gradAccum: 4,
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
  const times: number[] = [];
  let before = 0;
  for await (const { metrics } of run) {
    times.push(metrics['train/step_time'] as number);
    if (times.length === 1) before = group?.busySeconds ?? 0;
  }
  const measured = times.slice(1);
  const busy = (group?.busySeconds ?? 0) - before;
  return { steps: measured, collectives: busy / measured.reduce((sum, time) => sum + time, 0) };
}

async function together(
  ranks: number,
  kind: string,
  folder: string,
  steps: number,
  more: Record<string, string> = {},
): Promise<Timed> {
  const port = String(await freePort());
  const texts = await Promise.all(
    Array.from({ length: ranks }, (_, rank) => {
      const place = { RANK: `${rank}`, WORLD_SIZE: `${ranks}`, LOCAL_RANK: `${rank}`, LOCAL_WORLD_SIZE: `${ranks}` };
      const meeting = { MASTER_ADDR: '127.0.0.1', MASTER_PORT: port, TORCHELASTIC_RUN_ID: port, ATTUNE_THREADS: '1' };
      const child = spawn(process.execPath, [import.meta.filename, 'rank', kind, folder, String(steps)], {
        env: { ...process.env, ...place, ...meeting, ...more },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let said = '';
      child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
        said += chunk;
      });
      return new Promise<string>((resolve) => child.on('close', () => resolve(said)));
    }),
  );
  return JSON.parse(texts[0] as string) as Timed;
}

export async function* run(args: string[]): AsyncGenerator<Reading> {
  const { values } = parseArgs({
    args,
    options: {
      ranks: { type: 'string', default: '2' },
      steps: { type: 'string', default: '4' },
      trace: { type: 'string' },
    },
  });
  const folder = mkdtempSync(join(tmpdir(), 'attune-bench-dist-'));
  mkdirSync(join(folder, 'model'));
  using model = initModel(LLAMA_15M, { seed: 0 });
  saveModel(model, join(folder, 'model'));
  const ranks = Number(values.ranks);
  const mean = (times: readonly number[]) => times.reduce((sum, time) => sum + time, 0) / times.length;
  for (const kind of ['reward', 'grpo']) {
    const one = await together(1, kind, folder, Number(values.steps));
    const many = await together(ranks, kind, folder, Number(values.steps));
    const traces = join(values.trace ?? folder, `trace-${kind}`);
    await together(ranks, kind, folder, Number(values.steps), { ATTUNE_DIST_TRACE: traces });
    yield {
      name: `${kind}, ${ranks} processes of one thread`,
      one_s: mean(one.steps),
      many_s: mean(many.steps),
      times_as_fast: mean(one.steps) / mean(many.steps),
      collectives_share: many.collectives,
      hidden_share: hiddenShare(join(traces, 'rank-0.json')),
    };
  }
  yield { name: 'a world of one', us_per_update: await costOfOne() };
  rmSync(folder, { recursive: true });
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
  const computing = traceEvents.filter(({ cat }) => cat === 'compute');
  // The small ones are counts and metrics.
  const exchanged = traceEvents.filter(({ cat, args }) => cat === 'collectives' && (args?.bytes ?? 0) > 100_000);
  const common = (a: TraceEvent, b: TraceEvent) =>
    Math.max(0, Math.min(a.ts + a.dur, b.ts + b.dur) - Math.max(a.ts, b.ts));
  const hidden = exchanged.reduce((sum, one) => sum + computing.reduce((all, other) => all + common(one, other), 0), 0);
  return hidden / exchanged.reduce((sum, { dur }) => sum + dur, 0);
}

/** Microseconds that dealing, seeding and summing add to an update of four micro-batches that compute nothing. */
async function costOfOne(): Promise<number> {
  const optimizer = new AdamW([['w', keep(zeros([1]).requiresGrad_())]], { lr: 0 });
  const gradients = new GradientSums({ optimizer, world: soloWorld, exact: false, seed: 1 });
  const work = { batches: [1, 2, 3, 4], backward: () => ({ loss: 0 }), cost: () => 1, key: [1, 0], check: () => {} };
  for (let i = 0; i < 200; i++) await gradients.run(work);
  const begun = performance.now();
  for (let i = 0; i < 1000; i++) await gradients.run(work);
  return performance.now() - begun;
}

if (process.argv[2] === 'rank') {
  const [, , , kind, folder, steps] = process.argv as string[];
  console.log(JSON.stringify(await train(kind as string, folder as string, Number(steps))));
  process.exit(0);
}
