/**
 * `attune tasks`: the procedural tasks, samples of them, a verifier for files of responses, and training data.
 *
 *     attune tasks
 *     attune tasks show countdown --difficulty 2 --count 3
 *     attune tasks score responses.jsonl
 *     attune tasks generate --kind preference --tasks "chain_sum:1*2,gcd:1-3" --count 10000 --out pairs.jsonl
 */
import { createWriteStream } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import { fileBytes, textLines } from '../data/index.ts';
import { suggestion, UserError } from '../errors.ts';
import {
  allTasks,
  type CorpusOptions,
  corpusKinds,
  corpusRows,
  DistinctPrompts,
  type Example,
  formatReward,
  parts,
  styles,
  task,
} from '../tasks/index.ts';
import { wholeNumber } from './options/numbers.ts';
import { jsonLine, print, printJson, tell } from './terminal/print.ts';

interface GenerateFlags {
  kind: string;
  tasks: string;
  count: string;
  seed: string;
  out?: string;
  style: string;
  part: string;
  testShare: string;
  wrongShare?: string;
  perPrompt: string;
  system?: boolean;
}

export function register(program: Command): void {
  const command = program.command('tasks').description('procedural tasks with verifiable answers');

  command
    .command('list', { isDefault: true })
    .description('all tasks, one line each')
    .option('--json', 'print it as JSON')
    .action((flags: { json?: boolean }) => (flags.json ? printJson(overview(), 2) : print(listing())));

  command
    .command('show <name>')
    .description('samples of a task with worked solutions')
    .option('--difficulty <level>', 'how hard, from 1 (default: every level)')
    .option('--seed <number>', 'the first sample', '1')
    .option('--count <number>', 'how many samples of each difficulty', '1')
    .option('--json', 'one JSON object a line')
    .action((name: string, flags: { difficulty?: string; seed: string; count: string; json?: boolean }) => {
      print(samples(name, flags).join(flags.json ? '\n' : '\n\n'));
    });

  command
    .command('score <file>')
    .description('score responses: lines of {task, seed, difficulty, response} or {task, answer, meta, response}')
    .option('--json', 'print it as JSON')
    .action(async (file: string, flags: { json?: boolean }) => {
      const scores = await scoreFile(file);
      flags.json ? printJson(scores, 2) : print(table(scores));
    });

  command
    .command('generate')
    .description('training data from tasks, one JSON object a line')
    .requiredOption('--kind <kind>', `what to make: ${corpusKinds.join(', ')}`)
    .requiredOption('--tasks <mixture>', 'name[:difficulty][*weight], separated by commas; "all" is every task')
    .option('--count <rows>', 'how many rows', '1000')
    .option('--seed <number>', 'the same seed gives the same rows', '0')
    .option('--out <file>', 'where to write (default: standard output)')
    .option('--style <style>', `how solutions are written: ${styles.join(', ')}`, 'think')
    .option('--part <part>', `only prompts of this part: ${parts.join(', ')}`, 'all')
    .option('--test-share <share>', 'the share of prompts that are test prompts', '0.1')
    .option('--wrong-share <share>', 'the share of wrong solutions (default: 0 for sft, 0.5 for graded and steps)')
    .option('--per-prompt <number>', 'graded: solutions on each prompt', '1')
    .option('--system', 'sft: begin with a system message that asks for the think and answer tags')
    .action(generate);
}

function overview() {
  return allTasks.map(({ name, summary, levels }) => ({ name, summary, levels }));
}

function listing(): string {
  const width = Math.max(...allTasks.map(({ name }) => name.length));
  const lines = allTasks.map(({ name, summary, levels }) => `${name.padEnd(width)}  1-${levels}  ${summary}`);
  return [...lines, '', `${allTasks.length} tasks. \`attune tasks show NAME\` shows samples.`].join('\n');
}

function samples(name: string, flags: { difficulty?: string; seed: string; count: string; json?: boolean }): string[] {
  const shown = task(name);
  const seed = wholeNumber('--seed', flags.seed, Number.MIN_SAFE_INTEGER);
  const count = wholeNumber('--count', flags.count, 1);
  const everyLevel = Array.from({ length: shown.levels }, (_, i) => i + 1);
  const difficulties = flags.difficulty === undefined ? everyLevel : [wholeNumber('--difficulty', flags.difficulty, 1)];
  const examples = difficulties.flatMap((difficulty) =>
    Array.from({ length: count }, (_, i) => shown.generate(seed + i, difficulty)),
  );
  return examples.map((example) => {
    const steps = shown.solve(example);
    if (flags.json) return JSON.stringify({ ...example, steps });
    const solution = steps.map((step) => `    ${step}`).join('\n');
    const heading = `${shown.name}, difficulty ${example.difficulty}, seed ${example.seed}`;
    return `${heading}\n  ${example.prompt.replaceAll('\n', '\n  ')}\n  solution\n${solution}\n  answer\n    ${example.answer}`;
  });
}

interface TaskScore {
  task: string;
  rows: number;
  /** Mean score, partial credit included. */
  score: number;
  /** The share of responses with a score of 1. */
  correct: number;
  /** The mean format reward (think and answer tags). */
  format: number;
}

async function scoreFile(file: string): Promise<{ tasks: TaskScore[]; total: TaskScore }> {
  const sums = new Map<string, TaskScore>();
  for await (const { text, line } of textLines(fileBytes(file))) {
    if (text.trim() === '') continue;
    const { example, response } = readRow(text, `${file}:${line}`);
    const sum = sums.get(example.task) ?? { task: example.task, rows: 0, score: 0, correct: 0, format: 0 };
    const score = verified(example, response, `${file}:${line}`);
    sum.rows++;
    sum.score += score;
    sum.correct += score === 1 ? 1 : 0;
    sum.format += formatReward(response);
    sums.set(example.task, sum);
  }
  if (sums.size === 0) throw new UserError(`${file} has no rows to score.`);
  const rows = [...sums.values()].sort((a, b) => a.task.localeCompare(b.task));
  const total = rows.reduce(
    (all, each) => ({
      task: 'all',
      rows: all.rows + each.rows,
      score: all.score + each.score,
      correct: all.correct + each.correct,
      format: all.format + each.format,
    }),
    { task: 'all', rows: 0, score: 0, correct: 0, format: 0 },
  );
  return { tasks: rows.map(averaged), total: averaged(total) };
}

function averaged(sum: TaskScore): TaskScore {
  const { rows } = sum;
  return { ...sum, score: sum.score / rows, correct: sum.correct / rows, format: sum.format / rows };
}

type Scored = Pick<Example, 'task' | 'answer' | 'meta'>;

function readRow(text: string, place: string): { example: Scored; response: string } {
  const row = parsed(text, place);
  const response = row.response ?? row.completion;
  if (typeof row.task !== 'string') throw new UserError(`${place}: the row has no "task".`);
  if (typeof response !== 'string') throw new UserError(`${place}: the row has no "response" text.`);
  const known = task(row.task);
  if (typeof row.answer === 'string' && row.meta !== undefined) {
    return { example: { task: known.name, answer: row.answer, meta: row.meta }, response };
  }
  if (typeof row.seed !== 'number' || typeof row.difficulty !== 'number') {
    throw new UserError(`${place}: the row needs "seed" and "difficulty" as numbers, or "answer" and "meta".`);
  }
  try {
    return { example: known.generate(row.seed, row.difficulty), response };
  } catch (error) {
    throw error instanceof UserError ? new UserError(`${place}: ${error.message}`) : error;
  }
}

function parsed(text: string, place: string): Record<string, unknown> {
  let row: unknown;
  try {
    row = JSON.parse(text);
  } catch (error) {
    throw new UserError(`${place} is not JSON: ${(error as Error).message}.`);
  }
  if (typeof row !== 'object' || row === null || Array.isArray(row)) {
    throw new UserError(`${place}: expected a JSON object with "task" and "response".`);
  }
  return row as Record<string, unknown>;
}

function verified(example: Scored, response: string, place: string): number {
  try {
    return task(example.task).score(response, example);
  } catch (error) {
    // A meta that the task did not write itself; its verifier cannot make sense of it.
    throw new UserError(`${place}: "meta" is not that of a ${example.task} problem (${(error as Error).message}).`);
  }
}

function table({ tasks, total }: { tasks: TaskScore[]; total: TaskScore }): string {
  const width = Math.max(...tasks.map((each) => each.task.length), 'task'.length);
  const line = (cells: string[]) =>
    `${(cells[0] ?? '').padEnd(width)}${cells
      .slice(1)
      .map((cell) => cell.padStart(9))
      .join('')}`;
  const percent = (share: number) => `${(100 * share).toFixed(1)} %`;
  const row = ({ task: name, rows, score, correct, format }: TaskScore) =>
    line([name, String(rows), percent(correct), score.toFixed(3), format.toFixed(3)]);
  return [line(['task', 'rows', 'correct', 'score', 'format']), ...tasks.map(row), row(total)].join('\n');
}

async function generate(flags: GenerateFlags): Promise<void> {
  const kind = oneOf('--kind', flags.kind, corpusKinds);
  const options: CorpusOptions = {
    tasks: flags.tasks,
    count: wholeNumber('--count', flags.count, 1),
    seed: wholeNumber('--seed', flags.seed, Number.MIN_SAFE_INTEGER),
    style: oneOf('--style', flags.style, styles),
    part: oneOf('--part', flags.part, parts),
    testShare: share('--test-share', flags.testShare),
    ...(flags.wrongShare === undefined ? {} : { wrongShare: share('--wrong-share', flags.wrongShare) }),
    perPrompt: wholeNumber('--per-prompt', flags.perPrompt, 1),
    system: flags.system ?? false,
  };
  const prompts = new DistinctPrompts(kind, options.perPrompt);
  const lines = corpusRows(kind, options).map((row) => {
    prompts.add(row);
    return `${jsonLine(row)}\n`;
  });
  // The first row is made before a file is, so that a mistake in the mixture leaves no empty file behind.
  const first = lines.next();
  const all = (function* () {
    if (!first.done) yield first.value;
    yield* lines;
  })();
  const warn = () => {
    const warning = prompts.warning();
    if (warning !== undefined) tell(`WARNING  ${warning}`);
  };
  if (flags.out === undefined) {
    await printed(all);
    warn();
    return;
  }
  try {
    await mkdir(dirname(flags.out), { recursive: true });
    await pipeline(all, createWriteStream(flags.out));
  } catch (error) {
    if (error instanceof UserError) throw error;
    throw new UserError(`Cannot write ${flags.out}: ${(error as Error).message}.`);
  }
  print(`${flags.count} ${kind} rows in ${flags.out}`);
  warn();
}

async function printed(lines: Iterable<string>): Promise<void> {
  try {
    await pipeline(lines, process.stdout, { end: false });
  } catch (error) {
    // Whoever reads (head, a pager) has seen enough.
    if ((error as NodeJS.ErrnoException).code !== 'EPIPE') throw error;
  }
}

function oneOf<T extends string>(flag: string, text: string, known: readonly T[]): T {
  const found = known.find((each) => each === text);
  if (found !== undefined) return found;
  throw new UserError(`${flag} must be one of ${known.join(', ')}, not "${text}".${suggestion(text, known)}`);
}

function share(flag: string, text: string): number {
  const number = Number(text);
  if (text.trim() !== '' && number >= 0 && number <= 1) return number;
  throw new UserError(`${flag} must be a number from 0 to 1, not "${text}".`);
}
