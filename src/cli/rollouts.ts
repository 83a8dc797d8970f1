/** `attune rollouts`: what a policy wrote in training: best and worst, by step, one prompt over time. */
import type { Command } from 'commander';
import { UserError } from '../errors.ts';
import {
  openRun,
  type RolloutQuery,
  type RolloutReader,
  type StoredEvalRollout,
  type StoredRollout,
} from '../runs/index.ts';

interface Options {
  best?: string;
  worst?: string;
  step?: string;
  promptIndex?: string;
  eval?: boolean;
  limit: string;
  json?: boolean;
}

export function register(program: Command): void {
  program
    .command('rollouts <run>')
    .description('responses of a policy run: per step, best and worst, one prompt over time')
    .option('--best <n>', 'the n best')
    .option('--worst <n>', 'the n worst')
    .option('--step <n|a-b>', 'of one step, or of steps a to b')
    .option('--prompt-index <n>', 'everything sampled for one prompt, oldest first')
    .option('--eval', 'answers to held-out prompts instead')
    .option('--limit <n>', 'at most so many', '20')
    .option('--json', 'one JSON object a line')
    .addHelpText(
      'after',
      '\nExamples:\n  attune rollouts checkpoints/grpo/run\n  attune rollouts checkpoints/grpo/run --best 5 --step 90-100\n  attune rollouts checkpoints/grpo/run --prompt-index 3 --eval',
    )
    .action((run: string, options: Options) => {
      using rollouts = openRun(run).rollouts();
      const query = queryOf(options);
      if (query === undefined) printSteps(rollouts, options);
      else printRows(options.eval ? rollouts.evalQuery(query) : rollouts.query(query), rollouts, options);
    });
}

/** Undefined where nothing was singled out. */
function queryOf(options: Options): RolloutQuery | undefined {
  const { best, worst, step, promptIndex } = options;
  if (best !== undefined && worst !== undefined) throw new UserError('Ask for --best or for --worst, not for both.');
  if (best === undefined && worst === undefined && step === undefined && promptIndex === undefined && !options.eval)
    return undefined;
  return {
    ...(step === undefined ? {} : { step: stepsOf(step) }),
    ...(promptIndex === undefined ? {} : { promptIndex: whole(promptIndex, '--prompt-index') }),
    order: best !== undefined ? 'best' : worst !== undefined ? 'worst' : 'step',
    limit: whole(
      best ?? worst ?? options.limit,
      best !== undefined ? '--best' : worst !== undefined ? '--worst' : '--limit',
    ),
  };
}

function stepsOf(text: string): number | [number, number] {
  const [from, to] = text.split('-').map((part) => whole(part, '--step')) as [number, number | undefined];
  return to === undefined ? from : [from, to];
}

function whole(text: string, option: string): number {
  if (!/^\d+$/.test(text.trim())) throw new UserError(`${option} ${text}: expected a whole number.`);
  return Number(text);
}

function printSteps(rollouts: RolloutReader, options: Options): void {
  const steps = rollouts.steps();
  if (options.json) {
    for (const step of steps) console.log(JSON.stringify(step));
    return;
  }
  console.log('  step  rollouts  reward    least     most');
  const number = (value: number) => value.toFixed(3).padStart(8);
  const limit = whole(options.limit, '--limit');
  // From first to last, so that the course of a long run fits.
  const every = Math.max(1, Math.ceil(steps.length / limit));
  for (const [i, { step, count, mean, min, max }] of steps.entries()) {
    if (i % every !== 0 && i !== steps.length - 1) continue;
    console.log(
      `${String(step).padStart(6)}  ${String(count).padStart(8)}${number(mean)} ${number(min)} ${number(max)}`,
    );
  }
  console.log(`\n${steps.length} steps. --step N, --best N, --worst N, --prompt-index N and --eval show responses.`);
}

function printRows(rows: (StoredRollout | StoredEvalRollout)[], rollouts: RolloutReader, options: Options): void {
  if (rows.length === 0) console.log('No rollouts there.');
  let before = '';
  for (const row of rows) {
    const parts = options.eval ? {} : rollouts.parts(row.id);
    if (options.json) {
      console.log(JSON.stringify({ ...row, parts }));
      continue;
    }
    if (row.prompt !== before) console.log(`\n▌ prompt ${row.promptIndex}: ${row.prompt.replaceAll('\n', '\n▌ ')}`);
    before = row.prompt;
    const numbers = Object.entries(parts).map(([name, value]) => `${name} ${short(value)}`);
    const advantage = 'advantage' in row ? [`advantage ${short(row.advantage)}`] : [];
    console.log(`\nstep ${row.step}  ${[`reward ${short(row.reward)}`, ...advantage, ...numbers].join('  ')}`);
    console.log(row.completion.replace(/^/gm, '  '));
  }
}

const short = (value: number) => String(Number(value.toPrecision(4)));
