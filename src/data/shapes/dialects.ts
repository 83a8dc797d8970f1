/**
 * The ways in which datasets store each shape, tried in this order. Each says whether it fits a row, and reads rows. A
 * new format is one entry here.
 */

import { isRow, type Row } from '../sources/row.ts';
import { type Columns, toFlag } from './columns.ts';
import { promptNumber } from './conversions.ts';
import type { Dialect, Reading } from './dialect.ts';
import { commonMessages, isTranscript, RowProblem, splitTranscripts, toMessages, toText } from './messages.ts';
import type { GradedSolution, Message, PreferencePair, PromptExample } from './shapes.ts';
import { stepDialects } from './steps.ts';

const preference: Dialect = {
  name: 'preference pairs',
  shape: 'preference',
  needs: ['chosen', 'rejected'],
  speaks: (_row, columns) => columns.has('chosen', 'rejected'),
  read(row, reading) {
    const pair = readPair(row, reading);
    if (pair === undefined) return [];
    const margin = reading.margins ? neededMargin(row, reading.columns) : marginOf(row, reading.columns);
    if (margin !== undefined) pair.margin = margin;
    return [pair];
  },
};

function marginOf(row: Row, columns: Columns): number | undefined {
  const [high, low] = [columns.number(row, 'scoreChosen'), columns.number(row, 'scoreRejected')];
  return columns.number(row, 'margin') ?? (high !== undefined && low !== undefined ? high - low : undefined);
}

/** The same if the margin is trained on: an unreadable one is then a fault of the row. */
function neededMargin(row: Row, columns: Columns): number {
  const has = (role: 'margin' | 'scoreChosen' | 'scoreRejected') => (columns.get(row, role) ?? null) !== null;
  if (has('margin')) return columns.needNumber(row, 'margin');
  if (has('scoreChosen') && has('scoreRejected'))
    return columns.needNumber(row, 'scoreChosen') - columns.needNumber(row, 'scoreRejected');
  throw new RowProblem(
    'the pair has no margin, nor two scores to take one from, and --margin asks for one in every pair',
  );
}

function readPair(row: Row, { columns, drop }: Reading): PreferencePair | undefined {
  const chosen = columns.need(row, 'chosen');
  const rejected = columns.need(row, 'rejected');
  const given = columns.has('prompt') || columns.has('messages');
  if (typeof chosen === 'string' && typeof rejected === 'string') {
    if (isTranscript(chosen) && isTranscript(rejected)) {
      const split = splitTranscripts(chosen, rejected);
      if (split !== undefined)
        return { prompt: split.prompt, chosen: split.responses[0], rejected: split.responses[1] };
      drop('different prompts');
      return undefined;
    }
    if (!given)
      throw new RowProblem('there is no prompt: no such column, and "chosen" is not a Human/Assistant transcript');
    return { prompt: columns.prompt(row), chosen, rejected };
  }
  const before = given ? columns.prompt(row) : [];
  const [good, poor] = [
    responseMessages(chosen, columns.name('chosen')),
    responseMessages(rejected, columns.name('rejected')),
  ];
  // Both lists begin with the prompt: it is the part they share. A separate prompt column only repeats it.
  const shared = Math.min(commonMessages(good, poor), good.length - 1, poor.length - 1);
  if (good.length - shared !== 1 || poor.length - shared !== 1) {
    drop('different prompts');
    return undefined;
  }
  const prompt = shared > 0 ? withSystem(good.slice(0, shared), before) : before;
  if (prompt.length === 0) throw new RowProblem('there is no prompt before the two responses');
  return { prompt, chosen: (good[shared] as Message).content, rejected: (poor[shared] as Message).content };
}

/** A response as messages; a bare string is an assistant message. */
function responseMessages(value: unknown, column: string): Message[] {
  if (typeof value === 'string' && !/^\s*\[\s*\{/.test(value)) return [{ role: 'assistant', content: value }];
  const messages = toMessages(value, column);
  if (messages.length === 0) throw new RowProblem(`"${column}" is an empty list`);
  return messages;
}

function withSystem(messages: Message[], before: Message[]): Message[] {
  const system = before.filter((message) => message.role === 'system');
  return messages[0]?.role === 'system' ? messages : [...system, ...messages];
}

const gradedModels: Dialect = {
  name: 'graded solutions of several models',
  shape: 'graded',
  needs: ['prompt', 'completion', 'label'],
  speaks: (row, columns) => columns.has('prompt') && Object.values(row).some(isGraded),
  read(row, { columns, index }) {
    const prompt = columns.prompt(row);
    return Object.entries(row).flatMap(([source, value]): GradedSolution[] =>
      isGraded(value) ? [{ prompt, solution: value.solution, correct: value.is_correct, group: index, source }] : [],
    );
  },
};

function isGraded(value: unknown): value is { is_correct: boolean; solution: string } {
  return isRow(value) && typeof value.is_correct === 'boolean' && typeof value.solution === 'string';
}

const graded: Dialect = {
  name: 'graded solutions',
  shape: 'graded',
  needs: ['prompt', 'completion', 'label'],
  speaks: (_row, columns) =>
    columns.has('prompt', 'completion', 'label') && ['is_correct', 'correct'].includes(columns.name('label')),
  read(row, { columns }) {
    const solution = toText(columns.need(row, 'completion'), columns.name('completion'));
    const prompt = columns.prompt(row);
    return [{ prompt, solution, correct: columns.flag(row, 'label'), group: promptNumber(prompt) }];
  },
};

const unpaired: Dialect = {
  name: 'unpaired answers',
  shape: 'unpaired',
  needs: ['prompt', 'completion', 'label'],
  speaks: (_row, columns) => columns.has('label') && (columns.has('prompt', 'completion') || columns.has('messages')),
  read(row, { columns, drop }) {
    const label = toFlag(columns.need(row, 'label'), columns.name('label'));
    if (columns.has('prompt', 'completion')) {
      const completion = responseMessages(columns.need(row, 'completion'), columns.name('completion')).at(
        -1,
      ) as Message;
      return [{ prompt: columns.prompt(row), completion: completion.content, label }];
    }
    const messages = columns.prompt(row);
    const last = messages.at(-1);
    if (last?.role !== 'assistant' || messages.length < 2) {
      drop('no response at the end');
      return [];
    }
    return [{ prompt: messages.slice(0, -1), completion: last.content, label }];
  },
};

/** Whether rows say if their reply is good or bad. Read as chats, such a set consists of its good replies only. */
function isJudged(row: Row, columns: Columns): boolean {
  if (!columns.has('label')) return false;
  try {
    toFlag(columns.get(row, 'label'), 'label');
    return true;
  } catch {
    return false; // a label of another kind, such as a topic
  }
}

const conversations: Dialect = {
  name: 'conversations',
  shape: 'messages',
  needs: ['messages'],
  speaks: (row, columns) => columns.has('messages') && !columns.has('chosen', 'rejected') && !isJudged(row, columns),
  read(row, { columns, drop }) {
    const value = columns.need(row, 'messages');
    const messages = withSystem(toMessages(value, columns.name('messages')), columns.system(row));
    if (messages.some((message) => message.role === 'assistant')) return [{ messages }];
    drop('no response');
    return [];
  },
};

const instructions: Dialect = {
  name: 'prompts with responses',
  shape: 'messages',
  needs: ['prompt', 'completion'],
  speaks: (row, columns) => columns.has('prompt', 'completion') && !isJudged(row, columns),
  read(row, { columns }) {
    const completion = responseMessages(columns.need(row, 'completion'), columns.name('completion'));
    return [{ messages: [...columns.prompt(row), ...completion] }];
  },
};

const text: Dialect = {
  name: 'plain text',
  shape: 'text',
  needs: ['text'],
  speaks: (_row, columns) => columns.has('text'),
  read: (row, { columns }) => [{ text: columns.text(row, 'text') }],
};

const prompts: Dialect = {
  name: 'prompts',
  shape: 'prompts',
  needs: ['prompt'],
  speaks: (_row, columns) => columns.has('prompt'),
  read(row, { columns }) {
    const example: PromptExample = { prompt: columns.prompt(row) };
    const answer = columns.get(row, 'answer');
    if (typeof answer === 'string' || typeof answer === 'number') Object.assign(example, finalAnswer(String(answer)));
    return [example];
  },
};

/** GSM8K ends a worked solution with "#### 18" (or "A: 18"): the answer is what follows. */
export function finalAnswer(text: string): { answer: string; solution?: string } {
  const mark = /(?:^|\n)(?:####|A:)\s*(.+?)\s*$/.exec(text);
  return mark === null ? { answer: text.trim() } : { answer: (mark[1] as string).replaceAll(',', ''), solution: text };
}

export const dialects: readonly Dialect[] = [
  ...stepDialects,
  gradedModels,
  graded,
  preference,
  unpaired,
  conversations,
  instructions,
  text,
  prompts,
];
