/**
 * Walks the options of a trainer in short real runs.
 *
 *     walk('train sft', sftSchema, startSft, {
 *       base: () => ({ model, dataset, maxSteps: 3, … }),
 *       proofs: { lr: changes('weights', 0.1), loraR: [changes('weights', 4, { lora: true }), refused(4, /--lora/)], … },
 *     });
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { vi } from 'vitest';
import { Exchange } from '../../src/dist/exchange.ts';
import { Layer } from '../../src/models/decoder/layer.ts';
import { DecodePlan } from '../../src/models/generate/plan.ts';
import type { Progress } from '../../src/progress.ts';
import { type ConfigSchema, type ResolvedRun, resolveRun } from '../../src/runs/index.ts';
import type { TrainerOptions, TrainingRun } from '../../src/trainers/loop/training-run.ts';
import { type Options, type Proof as ProofOf, type Proofs, type Run, walkOptions } from './walk.ts';

export { fails, mends, type Options, refused } from './walk.ts';

/** What can be seen of a run. */
export interface Outcome {
  /** A hash of final/'s tensors. */
  weights: string;
  /** Measures of the training steps, without times. */
  metrics: string;
  /** Measures on held-out data. */
  evaluations: string;
  /** The files in the run's folder. */
  files: string;
  folder: string;
  /** The files in the folder for logs. */
  logs: string[];
  /** The steps of the rows of metrics. */
  steps: number[];
  /** Rows of rollouts.db. */
  rollouts: string;
  /** What the run said. */
  notes: string;
  /** How often a block of a model was computed forward, and how often prompts were read by one native call. */
  blocks: number;
  /** How often a micro-batch's gradients were added in their order (--exact). */
  ordered: number;
}

export type Proof = ProofOf<Outcome>;

/** A run with the option (and `given` beside it) differs in `what` from one without it. */
export const changes = (what: keyof Outcome, value: unknown, given: Options | (() => Options) = {}): Proof => ({
  kind: 'changes',
  ...{ what, value, given },
});
/** Anything else. */
export const seen = (body: (run: Run<Outcome>) => unknown): Proof => ({ kind: 'seen', body });

export interface Walked<S extends ConfigSchema> {
  /** The options of a short run, to which each proof adds. */
  base: () => Options;
  /** What a program passes besides: callbacks, rewards. */
  more?: Options;
  proofs: Proofs<S, Outcome>;
}

/** `startSft` and its like: runs are set up as the command line does. */
type Start<S extends ConfigSchema> = (resolved: ResolvedRun<S>, more?: TrainerOptions) => Promise<TrainingRun>;

export function walk<S extends ConfigSchema>(command: string, schema: S, start: Start<S>, walked: Walked<S>): void {
  const runs = mkdtempSync(join(tmpdir(), 'attune-options-'));
  const begin = async (options: Options, more: TrainerOptions) =>
    start(await resolveRun(schema, options, command), more);
  walkOptions<S, Outcome>(command, schema, {
    base: () => ({ outputDir: runs, reportTo: ['none'], evalSteps: -1, saveSteps: -1, ...walked.base() }),
    run: (options) => observe(begin, options, walked.more),
    proofs: walked.proofs,
  });
}

type Begin = (options: Options, more: TrainerOptions) => Promise<TrainingRun>;

async function observe(begin: Begin, options: Options, more: Options = {}): Promise<Outcome> {
  const notes: string[] = [];
  const progress: Progress = {
    start: (label, total) => {
      notes.push(`${label} ${total}`);
      return { advance() {}, done: (message) => void notes.push(message ?? '') };
    },
  };
  const blocks = vi.spyOn(Layer.prototype, 'forward');
  const read = vi.spyOn(DecodePlan.prototype, 'readPrompts');
  const ordered = vi.spyOn(Exchange.prototype, 'begin');
  try {
    using run = await begin(options, { cache: false, progress, run: { curves: false }, ...more });
    await run.finish();
    const rows = readFileSync(join(run.folder, 'metrics.jsonl'), 'utf8')
      .trim()
      .split('\n')
      .map((row) => JSON.parse(row));
    return {
      weights: finalWeights(run.folder),
      metrics: measures(rows, 'train/'),
      evaluations: measures(rows, 'eval/'),
      files: filesUnder(run.folder).join(' '),
      folder: run.folder,
      logs: filesUnder(String(options.logDir)),
      steps: rows.filter((row) => row['train/loss'] !== undefined).map(({ step }) => step),
      rollouts: rolloutsIn(run.folder),
      notes: notes.join('\n'),
      blocks: blocks.mock.calls.length + read.mock.calls.length,
      ordered: ordered.mock.calls.length,
    };
  } finally {
    blocks.mockRestore();
    read.mockRestore();
    ordered.mockRestore();
  }
}

const isMoment = (name: string) => /time|seconds|per_second/.test(name);

function measures(rows: Record<string, number>[], prefix: string): string {
  const kept = rows.map((row) =>
    Object.entries(row).filter(([name]) => name === 'step' || (name.startsWith(prefix) && !isMoment(name))),
  );
  return JSON.stringify(kept.filter((entries) => entries.length > 1));
}

function finalWeights(folder: string): string {
  const hash = createHash('sha256');
  const final = join(folder, 'final');
  if (!existsSync(final)) return 'none';
  for (const name of readdirSync(final).filter((file) => file.endsWith('.safetensors')))
    hash.update(readFileSync(join(final, name)));
  return hash.digest('hex');
}

function filesUnder(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const names = readdirSync(folder, { recursive: true }) as string[];
  return names
    .filter((name) => statSync(join(folder, name)).isFile())
    .map((name) => relative('.', name))
    .sort();
}

function rolloutsIn(folder: string): string {
  const file = join(folder, 'rollouts.db');
  if (!existsSync(file)) return 'none';
  const database = new DatabaseSync(file, { readOnly: true });
  const tables = ['rollouts', 'eval_rollouts', 'rollout_tokens'].map((table) =>
    database.prepare(`select * from ${table} order by 1`).all(),
  );
  database.close();
  return JSON.stringify(tables);
}
