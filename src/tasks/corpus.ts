/**
 * Training data from tasks, with the truth known: chats to imitate, preference pairs, graded solutions and solutions
 * with every step labelled. All are endless streams under a seed.
 *
 *     for (const row of preferenceRows({ tasks: 'chain_sum:1,gcd:1', seed: 7, count: 1000 })) ...
 *
 * Wrong solutions come from one slip in the right working (solution.ts), are rejected by the task's own verifier, and
 * are chosen to be as long as the right ones, so that length does not give them away.
 */
import {
  anything,
  atLeast,
  checkArgument,
  checkArguments,
  integer,
  oneOf,
  type Rule,
  share,
  whole,
} from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { Random } from '../random.ts';
import { type DrawOptions, type Mixture, type MixturePart, mixture } from './mixture.ts';
import { formatInstruction, respond, type Style, styles } from './parts/format.ts';
import type { Solution, StepLabel } from './parts/solution.ts';
import type { Example } from './parts/task.ts';
import { task } from './registry.ts';

/** Which tasks a corpus is drawn from, how many rows, and how solutions are written. */
export interface CorpusOptions extends DrawOptions {
  /** A mixture, or what makes one: `chain_sum:1*2,gcd:2`. */
  tasks: string | readonly MixturePart[] | Mixture;
  seed?: number;
  /** Number of rows; endless unless given. */
  count?: number;
  /** How solutions are written out (format.ts); `think` unless given. */
  style?: Style;
  /** A system message for chats: a text, or true for the one that asks for the think and answer tags. */
  system?: string | boolean;
  /** The share of solutions that are wrong; 0.5 of graded and labelled ones and none of chats unless given. */
  wrongShare?: number;
  /** Graded solutions in a row for each prompt, right or wrong; 1 unless given. */
  perPrompt?: number;
}

/** The problem that a row was made from, so that its verifier can check any other response to the prompt. */
export interface Source {
  task: string;
  seed: number;
  difficulty: number;
}

/** A row for supervised fine-tuning. */
export interface ChatRow extends Source {
  messages: { role: 'system' | 'user' | 'assistant'; content: string }[];
}

/** A row for preference training or a preference reward model. */
export interface PreferenceRow extends Source {
  prompt: string;
  chosen: string;
  rejected: string;
}

/** A row for an outcome reward model. */
export interface GradedRow extends Source {
  prompt: string;
  completion: string;
  correct: boolean;
  /** The verifier's grade of the completion, partial credit included. */
  score: number;
  answer: string;
}

/** A row for a process reward model. */
export interface LabelledStepsRow extends Source {
  prompt: string;
  /** The last step is the answer in its tags; its label says whether the whole is right. */
  steps: { text: string; label: StepLabel }[];
}

/** Chats with a worked solution to imitate; all right unless `wrongShare` is given. */
export function* chatRows(options: CorpusOptions): Generator<ChatRow> {
  const { system, style, wrongShare = 0 } = options;
  const instruction = system === true ? formatInstruction : system;
  for (const { example, solution } of worked({ ...options, wrongShare })) {
    const messages: ChatRow['messages'] = [
      { role: 'user', content: example.prompt },
      { role: 'assistant', content: respond(solution, style) },
    ];
    if (typeof instruction === 'string') messages.unshift({ role: 'system', content: instruction });
    yield { messages, ...source(example) };
  }
}

function* worked(options: CorpusOptions & { wrongShare: number }): Generator<{ example: Example; solution: Solution }> {
  if (options.wrongShare === 0) {
    for (const example of drawn(options)) yield { example, solution: task(example.task).solution(example) };
    return;
  }
  for (const { example, wrong } of drawnWithWrong(options)) {
    const random = new Random('sft', options.seed ?? 0, example.seed);
    yield { example, solution: either(random, options, example, wrong).solution };
  }
}

/** Preference pairs: a right and a wrong solution of the same problem. */
export function* preferenceRows(options: CorpusOptions): Generator<PreferenceRow> {
  const { style } = options;
  for (const { example, wrong } of drawnWithWrong(options)) {
    const chosen = respond(task(example.task).solution(example), style);
    yield { prompt: example.prompt, chosen, rejected: respond(wrong, style), ...source(example) };
  }
}

/** Solutions with the verifier's grade. */
export function* gradedRows(options: CorpusOptions): Generator<GradedRow> {
  const { style, count = Number.POSITIVE_INFINITY, perPrompt = 1 } = options;
  if (!Number.isInteger(perPrompt) || perPrompt < 1) {
    throw new UserError(`The number of solutions per prompt must be a whole number of 1 or more, not ${perPrompt}.`);
  }
  let rows = 0;
  for (const { example, wrong } of drawnWithWrong({ ...options, count: Math.ceil(count / perPrompt) })) {
    const random = new Random('graded', options.seed ?? 0, example.seed);
    for (let i = 0; i < perPrompt && rows < count; i++, rows++) {
      const other = i === 0 ? wrong : (task(example.task).wrongSolution(example, random.seed(), style) ?? wrong);
      const { solution, correct } = either(random, options, example, other);
      const completion = respond(solution, style);
      yield {
        prompt: example.prompt,
        completion,
        correct,
        score: solution.score,
        answer: example.answer,
        ...source(example),
      };
    }
  }
}

/** Solutions step by step: 1 right, 0 right but only restating, −1 the wrong step and all that follows it. */
export function* labelledStepsRows(options: CorpusOptions): Generator<LabelledStepsRow> {
  for (const { example, wrong } of drawnWithWrong({ ...options, style: 'steps' })) {
    const random = new Random('steps', options.seed ?? 0, example.seed);
    const { solution, correct } = either(random, options, example, wrong);
    const last = { text: respond(solution, 'answer'), label: correct ? 1 : -1 } as const;
    yield { prompt: example.prompt, steps: [...solution.steps, last], ...source(example) };
  }
}

const kinds = { sft: chatRows, preference: preferenceRows, graded: gradedRows, steps: labelledStepsRows };
/** The kind of a corpus's rows. */
export type CorpusKind = keyof typeof kinds;
/** The names of the kinds of corpus. */
export const corpusKinds = Object.keys(kinds) as CorpusKind[];

/** The rows of any kind, by name: what `attune tasks generate` writes. */
export function corpusRows(
  kind: CorpusKind,
  options: CorpusOptions,
): Generator<ChatRow | PreferenceRow | GradedRow | LabelledStepsRow> {
  checkArgument('The kind of a corpus', kind, oneOf(corpusKinds));
  return kinds[kind](options);
}

const rules: Partial<Record<keyof CorpusOptions, Rule>> = {
  ...{
    tasks: anything,
    seed: integer,
    count: atLeast(0),
    style: oneOf(styles),
    wrongShare: share,
    perPrompt: whole(1),
  },
};

const optionNames: Record<keyof CorpusOptions, true> = {
  ...{ tasks: true, seed: true, count: true, style: true, system: true, wrongShare: true, perPrompt: true },
  ...{ part: true, testShare: true },
};

function* drawn(options: CorpusOptions): Generator<Example> {
  checkArguments('A corpus', options, rules, ['tasks']);
  // Without a count, which may be misspelt, rows have no end.
  checkNames('A corpus', options, Object.keys(optionNames));
  const { tasks, seed = 0, count = Number.POSITIVE_INFINITY } = options;
  const mix = typeof tasks === 'object' && 'example' in tasks ? tasks : mixture(tasks);
  for (let index = 0; index < count; index++) yield mix.example(seed, index, options);
}

/** Examples with a wrong solution; the very few for which none could be made are skipped. */
function* drawnWithWrong(options: CorpusOptions): Generator<{ example: Example; wrong: Solution }> {
  const { seed = 0, count = Number.POSITIVE_INFINITY, style } = options;
  let given = 0;
  if (count <= 0) return;
  for (const example of drawn({ ...options, count: Number.POSITIVE_INFINITY })) {
    const wrong = task(example.task).wrongSolution(example, new Random('slip', seed, example.seed).seed(), style);
    if (wrong === undefined) continue;
    yield { example, wrong };
    if (++given >= count) return;
  }
}

function either(random: Random, options: CorpusOptions, example: Example, wrong: Solution) {
  const { wrongShare = 0.5 } = options;
  if (!(wrongShare >= 0 && wrongShare <= 1))
    throw new UserError(`The share of wrong solutions must be from 0 to 1, not ${wrongShare}.`);
  const correct = !random.chance(wrongShare);
  return { correct, solution: correct ? task(example.task).solution(example) : wrong };
}

function source({ task: name, seed, difficulty }: Example): Source {
  return { task: name, seed, difficulty };
}
