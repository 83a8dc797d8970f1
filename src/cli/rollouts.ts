/** `attune rollouts`: what a policy wrote in training: best and worst, by step, one prompt over time. */
import { statSync } from 'node:fs';
import type { Command } from 'commander';
import { UserError } from '../errors.ts';
import {
  openRollouts,
  openRun,
  type RolloutQuery,
  type RolloutReader,
  type StoredEvalRollout,
  type StoredRollout,
} from '../runs/index.ts';
import { wholeNumber } from './options/numbers.ts';
import { print, printJson } from './terminal/print.ts';

interface Options {
  best?: string;
  worst?: string;
  step?: string;
  promptIndex?: string;
  eval?: boolean;
  limit?: string;
  json?: boolean;
}

/** As many as fit a screen or two; who reads JSON gets all. */
const usualLimit = 20;

export function register(program: Command): void {
  program
    .command('rollouts <run>')
    .description(
      'responses of a policy run (its folder, or a rollouts.db): per step, best and worst, one prompt over time',
    )
    .option('--best <n>', 'the n best')
    .option('--worst <n>', 'the n worst')
    .option('--step <n|a-b>', 'of one step, or of steps a to b')
    .option('--prompt-index <n>', 'everything sampled for one prompt, oldest first')
    .option('--eval', 'answers to held-out prompts instead')
    .option('--limit <n>', `at most so many (${usualLimit}; with --json all)`)
    .option('--json', 'one JSON object a line')
    .addHelpText(
      'after',
      '\nExamples:\n  attune rollouts checkpoints/grpo/run\n  attune rollouts checkpoints/grpo/run --best 5 --step 90-100\n  attune rollouts checkpoints/grpo/run --prompt-index 3 --eval',
    )
    .action((run: string, options: Options) => {
      const query = queryOf(options);
      using rollouts = readerOf(run);
      if (query === undefined) printSteps(rollouts, options);
      else printRows(rowsOf(rollouts, query, options), rollouts, options);
    });
}

function readerOf(path: string): RolloutReader {
  if (statSync(path, { throwIfNoEntry: false })?.isFile()) return openRollouts(path);
  return openRun(path).rollouts();
}

/** Undefined where nothing was singled out. */
function queryOf(options: Options): RolloutQuery | undefined {
  const { best, worst, step, promptIndex, limit } = options;
  if (best !== undefined && worst !== undefined) throw new UserError('Ask for --best or for --worst, not for both.');
  const most = limit === undefined ? undefined : wholeNumber('--limit', limit, 1);
  if (best === undefined && worst === undefined && step === undefined && promptIndex === undefined && !options.eval)
    return undefined;
  const count =
    best !== undefined
      ? wholeNumber('--best', best, 1)
      : worst !== undefined
        ? wholeNumber('--worst', worst, 1)
        : (most ?? (options.json ? undefined : usualLimit));
  return {
    ...(step === undefined ? {} : { step: stepsOf(step) }),
    ...(promptIndex === undefined ? {} : { promptIndex: wholeNumber('--prompt-index', promptIndex) }),
    order: best !== undefined ? 'best' : worst !== undefined ? 'worst' : 'step',
    limit: count,
  };
}

function stepsOf(text: string): number | [number, number] {
  const parts = /^(\d+)(?:-(\d+))?$/.exec(text.trim());
  if (parts === null) throw new UserError(`--step takes a step or a range such as 90-100, not "${text}".`);
  const from = Number(parts[1]);
  if (parts[2] === undefined) return from;
  const to = Number(parts[2]);
  if (to < from) throw new UserError(`--step ${text}: the range ends before it begins.`);
  return [from, to];
}

function rowsOf(rollouts: RolloutReader, query: RolloutQuery, options: Options): (StoredRollout | StoredEvalRollout)[] {
  const rows = options.eval ? rollouts.evalQuery(query) : rollouts.query(query);
  if (rows.length > 0) return rows;
  const steps = options.eval ? rollouts.evalSteps() : rollouts.steps();
  const what = options.eval ? 'answers to held-out prompts' : 'rollouts';
  if (steps.length === 0) throw new UserError(`There are no ${what} in this database.`);
  const range = `${steps[0]?.step} to ${steps.at(-1)?.step}`;
  const ofPrompt = query.promptIndex === undefined ? '' : ` of prompt ${query.promptIndex}`;
  const atStep = options.step === undefined ? '' : ` at step ${options.step}`;
  throw new UserError(`There are no ${what}${ofPrompt}${atStep}; the database has steps ${range}.`);
}

function printSteps(rollouts: RolloutReader, options: Options): void {
  const steps = rollouts.steps();
  if (options.json) {
    for (const step of steps) printJson(step);
    return;
  }
  print('  step  rollouts  reward    least     most');
  const number = (value: number) => value.toFixed(3).padStart(8);
  // From first to last, so that the course of a long run fits.
  const every = Math.max(1, Math.ceil(steps.length / Number(options.limit ?? usualLimit)));
  for (const [i, { step, count, mean, min, max }] of steps.entries()) {
    if (i % every !== 0 && i !== steps.length - 1) continue;
    print(`${String(step).padStart(6)}  ${String(count).padStart(8)}${number(mean)} ${number(min)} ${number(max)}`);
  }
  print(`\n${steps.length} steps. --step N, --best N, --worst N, --prompt-index N and --eval show responses.`);
}

function printRows(rows: (StoredRollout | StoredEvalRollout)[], rollouts: RolloutReader, options: Options): void {
  let before = '';
  for (const row of rows) {
    const parts = options.eval ? rollouts.evalParts(row.id) : rollouts.parts(row.id);
    if (options.json) {
      printJson({ ...row, parts });
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
