/**
 * Proves of every option of a trainer that it does something, or that it is refused by name where it would do nothing.
 *
 *     walk('train sft', sftSchema, startSft, {
 *       base: { model, dataset, maxSteps: 3, … },
 *       proofs: { lr: changes('weights', 0.1), loraR: [changes('weights', 4, { lora: true }), refused(4, /--lora/)], … },
 *     });
 *
 * Each proof is about one option in a short real run. A field of the schema without a proof fails, and so does a rule
 * (withRules) that no proof makes speak; so neither can be added without one.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, vi } from 'vitest';
import type { z } from 'zod';
import { Exchange } from '../../src/dist/exchange.ts';
import { Layer } from '../../src/models/decoder/layer.ts';
import type { Progress } from '../../src/progress.ts';
import { unreadRules } from '../../src/runs/config/unread.ts';
import { type ConfigSchema, kebabCase, type ResolvedRun, resolveConfig, resolveRun } from '../../src/runs/index.ts';
import type { TrainerOptions, TrainingRun } from '../../src/trainers/loop/training-run.ts';

export type Options = Record<string, unknown>;

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
  /** How often a block of a model was computed forward. */
  blocks: number;
  /** How often a micro-batch's gradients were added in their order (--exact). */
  ordered: number;
}

type Given = Options | (() => Options);

export type Proof =
  | { kind: 'changes'; what: keyof Outcome; value: unknown; given: Given }
  | { kind: 'refused'; because: RegExp; value: unknown; given: Given }
  | { kind: 'fails'; because: RegExp; value: unknown; given: Given }
  | { kind: 'mends'; value: unknown; given: Given }
  | { kind: 'seen'; body: (run: Run) => unknown };

/** A short run with these options besides; how it came out. */
type Run = (options: Options) => Promise<Outcome>;

/** A run with the option (and `given` beside it) differs in `what` from one without it. */
export const changes = (what: keyof Outcome, value: unknown, given: Given = {}): Proof => ({
  kind: 'changes',
  ...{ what, value, given },
});
/** The option is refused by its name. */
export const refused = (value: unknown, because: RegExp, given: Given = {}): Proof => ({
  kind: 'refused',
  ...{ value, because, given },
});
/** With the option the run fails, in words that show that it was read; without it, it does not. */
export const fails = (value: unknown, because: RegExp, given: Given = {}): Proof => ({
  kind: 'fails',
  ...{ value, because, given },
});
/** Without the option the run fails, with it it does not. */
export const mends = (value: unknown, given: Given): Proof => ({ kind: 'mends', ...{ value, given } });
/** Anything else. */
export const seen = (body: (run: Run) => unknown): Proof => ({ kind: 'seen', body });

export interface Walked<S extends ConfigSchema> {
  /** The options of a short run, to which each proof adds. Functions are called when the tests run. */
  base: () => Options;
  /** What a program passes besides: callbacks, rewards. */
  more?: Options;
  proofs: { [Name in keyof z.output<S>]-?: Proof | readonly Proof[] };
}

/** `startSft` and its like: runs are set up as the command line does. */
type Start<S extends ConfigSchema> = (resolved: ResolvedRun<S>, more?: TrainerOptions) => Promise<TrainingRun>;

export function walk<S extends ConfigSchema>(command: string, schema: S, start: Start<S>, walked: Walked<S>): void {
  const runs = mkdtempSync(join(tmpdir(), 'attune-options-'));
  const begin = async (options: Options, more: TrainerOptions) =>
    start(await resolveRun(schema, options, command), more);
  const known = new Map<string, Promise<Outcome>>();
  const spoken = new Set<string>();

  /** The outcome of base, `given` and `own`; computed once for the same options. */
  const outcome = (given: Options, own: Options = {}): Promise<Outcome> => {
    const options = {
      outputDir: runs,
      reportTo: ['none'],
      evalSteps: -1,
      saveSteps: -1,
      ...walked.base(),
      ...given,
      ...own,
    };
    const key = JSON.stringify(options, (_, value) => (value === undefined ? 'unset' : value));
    const found = known.get(key) ?? observe(begin, options, walked.more);
    known.set(key, found);
    return found;
  };
  const givenOf = (given: Given) => (typeof given === 'function' ? given() : given);

  const prove = async (name: string, proof: Proof): Promise<void> => {
    if (proof.kind === 'seen') return void (await proof.body(outcome));
    const given = givenOf(proof.given);
    const value = typeof proof.value === 'function' ? (proof.value as () => unknown)() : proof.value;
    const own = { [name]: value };
    if (proof.kind === 'changes') {
      const [without, with_] = [await outcome(given), await outcome(given, own)];
      expect(with_[proof.what]).not.toEqual(without[proof.what]);
    } else if (proof.kind === 'mends') {
      await expect(outcome(given)).rejects.toThrow();
      await outcome(given, own);
    } else {
      const failure = await outcome(given, own).then(
        () => undefined,
        (error: Error) => error,
      );
      expect(failure?.message).toMatch(proof.because);
      if (proof.kind === 'fails') return void (await outcome(given));
      expect(failure?.message).toContain(`--${kebabCase(name)}`);
      noteRules(schema, { evalSteps: -1, saveSteps: -1, ...walked.base(), ...given, ...own }, name, spoken);
    }
  };

  describe(`${command}: every option does something or is refused`, () => {
    for (const [name, proofs] of Object.entries(walked.proofs) as [string, Proof | readonly Proof[]][])
      it(`--${kebabCase(name)}`, async () => {
        for (const proof of [proofs].flat() as Proof[]) await prove(name, proof);
      });

    it('has a proof for each field of the schema', () => {
      expect(Object.keys(walked.proofs).sort()).toEqual(Object.keys(schema.shape).sort());
    });

    it('has made every rule speak, for each of its options', () => {
      const rules = unreadRules(schema).flatMap(({ options }, i) => options.map((option) => `${i} ${option}`));
      expect(rules.filter((rule) => !spoken.has(rule))).toEqual([]);
    });
  });
}

/** Writes down the rules that hold against an option in such a run. */
function noteRules(schema: ConfigSchema, flags: Options, name: string, spoken: Set<string>): void {
  const texts = Object.entries(flags).filter(([, value]) => typeof value !== 'object' || Array.isArray(value));
  const { config } = resolveConfig(schema, { flags: Object.fromEntries(texts) });
  for (const [i, rule] of unreadRules(schema).entries())
    if ((rule.options as readonly string[]).includes(name) && rule.unread(config as never)) spoken.add(`${i} ${name}`);
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
      blocks: blocks.mock.calls.length,
      ordered: ordered.mock.calls.length,
    };
  } finally {
    blocks.mockRestore();
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
