/**
 * `attune tasks`: the procedural tasks, samples of them, a verifier for files of responses, and training data.
 *
 *     attune tasks
 *     attune tasks show countdown --difficulty 2 --count 3
 *     attune tasks score responses.jsonl
 *     attune tasks generate --kind preference --tasks "chain_sum:1*2,gcd:1-3" --count 10000 --out pairs.jsonl
 */
import { setImmediate } from 'node:timers/promises';
import type { Command } from 'commander';
import { z } from 'zod';
import { fileBytes } from '../data/sources/bytes.ts';
import { textLines } from '../data/sources/lines.ts';
import { UserError } from '../errors.ts';
import { refuseExisting } from '../existing-file.ts';
import { field, withRules } from '../runs/index.ts';
import { DistinctPrompts } from '../tasks/distinct.ts';
import { allTasks, corpusKinds, corpusRows, type Example, formatReward, parts, styles, task } from '../tasks/index.ts';
import { registerCommand } from './options/command.ts';
import { jsonField, overwriteField } from './options/model-fields.ts';
import { OutputFile } from './options/outputs.ts';
import { jsonLine, print, printJson, printPart, tell } from './terminal/print.ts';

const count = () => z.number().int().positive();
const share = () => z.number().min(0).max(1);

export const listSchema = z.object({ json: jsonField });

export const showSchema = z.object({
  name: field(z.string(), { description: 'the task, or task:difficulty' }),
  difficulty: field(count().optional(), { description: 'how hard, from 1; every level when left out' }),
  seed: field(z.number().int().default(1), { description: 'the first sample' }),
  count: field(count().default(1), { description: 'how many samples of each difficulty' }),
  json: field(z.boolean().default(false), { description: 'one JSON object a line' }),
});

export const scoreSchema = z.object({
  file: field(z.string(), {
    description: 'lines of {task, seed, difficulty, response} or {task, answer, meta, response}',
  }),
  json: jsonField,
});

const generateOptions = z.object({
  kind: field(z.enum(corpusKinds), { description: 'what to make' }),
  tasks: field(z.string(), {
    description: 'name[:difficulty][*weight], separated by commas; "all" is every task',
    aliases: ['task'],
  }),
  count: field(count().default(1000), { description: 'how many rows' }),
  seed: field(z.number().int().default(0), { description: 'the same seed gives the same rows' }),
  out: field(z.string().optional(), {
    description: 'where to write; standard output where left out',
    aliases: ['output'],
  }),
  overwrite: overwriteField,
  style: field(z.enum(styles).default('think'), { description: 'how solutions are written' }),
  part: field(z.enum(parts).default('all'), { description: 'only prompts of this part' }),
  testShare: field(share().default(0.1), { description: 'the share of prompts that are test prompts' }),
  wrongShare: field(share().optional(), {
    description: 'the share of wrong solutions; 0 for sft, 0.5 for graded and steps when left out',
  }),
  perPrompt: field(count().default(1), { description: 'graded: solutions on each prompt' }),
  system: field(z.boolean().default(false), {
    description: 'sft: begin with a system message that asks for the think and answer tags',
  }),
});

export const generateSchema = withRules(generateOptions, [
  { options: ['overwrite'], unread: ({ out }) => out === undefined, because: 'there is no file without --out' },
  { options: ['perPrompt'], unread: ({ kind }) => kind !== 'graded', because: 'it is for --kind graded' },
  { options: ['system'], unread: ({ kind }) => kind !== 'sft', because: 'it is for --kind sft' },
  {
    options: ['style'],
    unread: ({ kind }) => kind === 'steps',
    because: 'solutions of --kind steps are written step by step',
  },
  {
    options: ['wrongShare'],
    unread: ({ kind }) => kind === 'preference',
    because: 'a pair is one right and one wrong solution',
  },
  {
    options: ['testShare'],
    unread: ({ part }) => part === 'all',
    because: 'prompts of both parts are taken (--part all)',
  },
]);

export function register(program: Command): void {
  const command = program.command('tasks').description('procedural tasks with verifiable answers');
  registerCommand(command, {
    name: 'list',
    isDefault: true,
    description: 'all tasks, one line each',
    schema: listSchema,
    run: ({ json }) => (json ? printJson(overview(), 2) : print(listing())),
  });
  registerCommand(command, {
    name: 'show',
    description: 'samples of a task with worked solutions',
    schema: showSchema,
    words: ['name'],
    examples: ['attune tasks show countdown --difficulty 2 --count 3'],
    run: (config) => print(samples(config).join(config.json ? '\n' : '\n\n')),
  });
  registerCommand(command, {
    name: 'score',
    description: 'score responses by the verifier of their task',
    schema: scoreSchema,
    words: ['file'],
    async run({ file, json }) {
      const scores = await scoreFile(file);
      if (json) printJson(scores, 2);
      else print(table(scores));
    },
  });
  registerCommand(command, {
    name: 'generate',
    description: 'training data from tasks, one JSON object a line',
    schema: generateSchema,
    examples: [
      'attune tasks generate --kind preference --tasks "chain_sum:1*2,gcd:1-3" --count 10000 --out pairs.jsonl',
    ],
    run: generate,
  });
}

function overview() {
  return allTasks.map(({ name, summary, levels }) => ({ name, summary, levels }));
}

function listing(): string {
  const width = Math.max(...allTasks.map(({ name }) => name.length));
  const lines = allTasks.map(({ name, summary, levels }) => `${name.padEnd(width)}  1-${levels}  ${summary}`);
  return [...lines, '', `${allTasks.length} tasks. \`attune tasks show NAME\` shows samples.`].join('\n');
}

function samples({ seed, count: each, json, ...asked }: z.output<typeof showSchema>): string[] {
  const { name, difficulty } = namedLevel(asked);
  const shown = task(name);
  const everyLevel = Array.from({ length: shown.levels }, (_, i) => i + 1);
  const examples = (difficulty === undefined ? everyLevel : [difficulty]).flatMap((level) =>
    Array.from({ length: each }, (_, i) => shown.generate(seed + i, level)),
  );
  return examples.map((example) => {
    const steps = shown.solve(example);
    if (json) return jsonLine({ ...example, steps });
    const solution = steps.map((step) => `    ${step}`).join('\n');
    const heading = `${shown.name}, difficulty ${example.difficulty}, seed ${example.seed}`;
    return `${heading}\n  ${example.prompt.replaceAll('\n', '\n  ')}\n  solution\n${solution}\n  answer\n    ${example.answer}`;
  });
}

/** A level may stand behind the name, as in a mixture: gcd:2. */
function namedLevel({ name, difficulty }: { name: string; difficulty?: number }) {
  const [, plain, level] = /^(.+):(\d+)$/.exec(name) ?? [];
  if (plain === undefined) return { name, difficulty };
  if (difficulty !== undefined) throw new UserError(`${name} names a difficulty already: leave --difficulty out.`);
  return { name: plain, difficulty: Number(level) };
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
  for await (const { text, line } of textLines(fileBytes(file), file)) {
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
    // The `meta` was not written by this task, and its verifier cannot read it.
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

async function generate({ kind, out: path, overwrite, ...options }: z.output<typeof generateSchema>): Promise<void> {
  if (path !== undefined) refuseExisting('--out', path, { overwrite });
  const rows = corpusRows(kind, options);
  // The first row is made before the file, so that an error in the mixture leaves no file behind.
  let next = rows.next();
  using out = path === undefined ? undefined : new OutputFile('--out', path);
  const prompts = new DistinctPrompts(kind, options.perPrompt);
  for (; !next.done; next = rows.next()) {
    prompts.add(next.value);
    const line = `${jsonLine(next.value)}\n`;
    if (out === undefined) printPart(line);
    else out.write(line);
    // Lets the event loop run now and then, so that a closed output (head, a pager) ends the command.
    if (prompts.rows % 256 === 0) await setImmediate();
  }
  out?.finish();
  if (out !== undefined) print(`${prompts.rows} ${kind} rows in ${path}, ${prompts.distinct} different prompts`);
  const warning = prompts.warning();
  if (warning !== undefined) tell(`Attention: ${warning}`);
}
