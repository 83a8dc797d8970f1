/** `attune rollouts`: the rollouts of a policy run: best and worst, by step, one prompt over time. */
import { statSync } from 'node:fs';
import type { Command } from 'commander';
import { z } from 'zod';
import { UserError } from '../errors.ts';
import {
  field,
  openRollouts,
  openRun,
  type RolloutQuery,
  type RolloutReader,
  type StoredEvalRollout,
  type StoredRollout,
  withRules,
} from '../runs/index.ts';
import { counted } from '../spelling.ts';
import { registerCommand } from './options/command.ts';
import { print, printJson } from './terminal/print.ts';

/** About two screens; JSON output has all rows. */
const usualLimit = 20;

const count = () => z.number().int().positive().optional();
const isSteps = (text: string) => /^\d+(-\d+)?$/.test(text.trim());

const rolloutsOptions = z.object({
  run: field(z.string(), { description: "a policy run's folder, or a rollouts.db" }),
  best: field(count(), { description: 'the n best' }),
  worst: field(count(), { description: 'the n worst' }),
  step: field(
    z
      .preprocess(
        (value) => (typeof value === 'number' ? String(value) : value),
        z.string().refine(isSteps, 'takes a step or a range such as 90-100.'),
      )
      .optional(),
    { description: 'of one step, or of steps a to b', examples: ['12', '90-100'] },
  ),
  promptIndex: field(z.number().int().min(0).optional(), {
    description: 'everything sampled for one prompt, oldest first',
  }),
  eval: field(z.boolean().default(false), { description: 'responses to held-out prompts instead' }),
  limit: field(count(), { description: `show at most this many (${usualLimit}; with --json all)` }),
  json: field(z.boolean().default(false), { description: 'one JSON object a line' }),
});

export const rolloutsSchema = withRules(rolloutsOptions, [
  {
    options: ['limit'],
    unread: ({ best, worst }) => best !== undefined || worst !== undefined,
    because: '--best and --worst say how many',
  },
]);

type Options = z.output<typeof rolloutsSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'rollouts',
    description:
      'responses of a policy run (its folder, or a rollouts.db): per step, best and worst, one prompt over time',
    schema: rolloutsSchema,
    words: ['run'],
    examples: [
      'attune rollouts checkpoints/grpo/run',
      'attune rollouts checkpoints/grpo/run --best 5 --step 90-100',
      'attune rollouts checkpoints/grpo/run --prompt-index 3 --eval',
    ],
    run(options) {
      const query = queryOf(options);
      using rollouts = readerOf(options.run);
      if (query === undefined) printSteps(rollouts, options);
      else printRows(rowsOf(rollouts, query, options), rollouts, options);
    },
  });
}

function readerOf(path: string): RolloutReader {
  if (statSync(path, { throwIfNoEntry: false })?.isFile()) return openRollouts(path);
  return openRun(path).rollouts();
}

/** Undefined if no rows were selected. */
function queryOf(options: Options): RolloutQuery | undefined {
  const { best, worst, step, promptIndex, limit } = options;
  if (best !== undefined && worst !== undefined) throw new UserError('Ask for --best or for --worst, not for both.');
  if (best === undefined && worst === undefined && step === undefined && promptIndex === undefined && !options.eval)
    return undefined;
  return {
    ...(step === undefined ? {} : { step: stepsOf(step) }),
    ...(promptIndex === undefined ? {} : { promptIndex }),
    order: best !== undefined ? 'best' : worst !== undefined ? 'worst' : 'step',
    limit: best ?? worst ?? limit ?? (options.json ? undefined : usualLimit),
  };
}

/** `12`, or the range `90-100`. */
function stepsOf(text: string): number | [number, number] {
  const [from = 0, to] = text.split('-').map(Number);
  if (to === undefined) return from;
  if (to < from) throw new UserError(`--step ${text}: the range ends before it begins.`);
  return [from, to];
}

function rowsOf(rollouts: RolloutReader, query: RolloutQuery, options: Options): (StoredRollout | StoredEvalRollout)[] {
  const rows = options.eval ? rollouts.evalQuery(query) : rollouts.query(query);
  if (rows.length > 0) return rows;
  const steps = options.eval ? rollouts.evalSteps() : rollouts.steps();
  const what = options.eval ? 'responses to held-out prompts' : 'rollouts';
  if (steps.length === 0) throw new UserError(`There are no ${what} in this database.`);
  const range = `${steps[0]?.step} to ${steps.at(-1)?.step}`;
  const ofPrompt = query.promptIndex === undefined ? '' : ` of prompt ${query.promptIndex}`;
  const atStep = options.step === undefined ? '' : ` at step ${options.step}`;
  throw new UserError(`There are no ${what}${ofPrompt}${atStep}; the database has steps ${range}.`);
}

function printSteps(rollouts: RolloutReader, options: Options): void {
  const steps = rollouts.steps();
  // Evenly spaced from first to last, so that a long run fits.
  const most = options.limit ?? (options.json ? steps.length : usualLimit);
  const every = Math.max(1, Math.ceil(steps.length / most));
  const chosen = steps.filter((_, i) => i % every === 0 || (i === steps.length - 1 && options.limit === undefined));
  if (options.json) {
    for (const step of chosen) printJson(step);
    return;
  }
  print('  step  rollouts  reward    least     most');
  const number = (value: number) => value.toFixed(3).padStart(8);
  for (const { step, count: rows, mean, min, max } of chosen)
    print(`${String(step).padStart(6)}  ${String(rows).padStart(8)}${number(mean)} ${number(min)} ${number(max)}`);
  print(
    `\n${counted(steps.length, 'step')}. --step N, --best N, --worst N, --prompt-index N and --eval show responses.`,
  );
}

function printRows(rows: (StoredRollout | StoredEvalRollout)[], rollouts: RolloutReader, options: Options): void {
  let before = '';
  for (const row of rows) {
    const parts = options.eval ? rollouts.evalParts(row.id) : rollouts.parts(row.id);
    if (options.json) {
      const episode = options.eval ? rollouts.evalEpisode(row.id) : rollouts.episode(row.id);
      printJson({ ...row, parts, ...(episode && { episode }) });
      continue;
    }
    if (row.prompt !== before) print(`\n▌ prompt ${row.promptIndex}: ${row.prompt.replaceAll('\n', '\n▌ ')}`);
    before = row.prompt;
    const numbers = Object.entries(parts).map(([name, value]) => `${name} ${short(value)}`);
    const advantage = 'advantage' in row ? [`advantage ${short(row.advantage)}`] : [];
    print(`\nstep ${row.step}  ${[`reward ${short(row.reward)}`, ...advantage, ...numbers].join('  ')}`);
    print(row.completion.replace(/^/gm, '  '));
  }
  const cut = !options.json && options.best === undefined && options.worst === undefined && options.limit === undefined;
  if (cut && rows.length === usualLimit) print(`\nThe first ${usualLimit}; --limit N shows more.`);
}

const short = (value: number) => String(Number(value.toPrecision(4)));
