/**
 * Solutions with a label on each step: PRM800K, PRMBench, BIG-Bench Mistake, and lists of steps beside lists of labels.
 */

import { isRow, type Row } from '../sources/row.ts';
import type { Dialect } from './dialect.ts';
import { RowProblem } from './messages.ts';
import type { LabelledSteps, Message, StepLabel } from './shapes.ts';

type Step = LabelledSteps['steps'][number];

const say = (content: string): Message[] => [{ role: 'user', content }];

/**
 * PRM800K (Lightman et al., 2023): at each step several completions were rated, and one of them, or a human's, was
 * chosen. One example is the chosen path. Every other rated completion makes its own example, whose earlier steps are
 * context only (label null), so that no label is counted twice.
 */
const prm800k: Dialect = {
  name: 'PRM800K',
  shape: 'steps',
  needs: ['prompt', 'steps', 'stepLabels'],
  speaks: (row) => isRow(row.question) && isRow(row.label) && Array.isArray(row.label.steps),
  read(row, { drop }) {
    const { problem } = row.question as Row;
    if (typeof problem !== 'string') throw new RowProblem('"question.problem" must be text');
    const prompt = say(problem);
    const path: Step[] = [];
    const others: LabelledSteps[] = [];
    for (const step of (row.label as Row).steps as Row[]) {
      const rated = (Array.isArray(step.completions) ? step.completions : []).map(ratedStep);
      const context = path.map(({ text }) => ({ text, label: null }));
      const human = isRow(step.human_completion) ? step.human_completion.text : undefined;
      let taken: Step | undefined;
      if (typeof step.chosen_completion === 'number') taken = rated[step.chosen_completion];
      else if (typeof human === 'string') taken = { text: human, label: 1 };
      // If a solution ends in an error, the rated completion is the last step of the path.
      else taken = rated.find((one) => one !== undefined);
      for (const one of rated) {
        if (one !== undefined && one !== taken) others.push({ prompt, steps: [...context, one] });
      }
      if (taken === undefined) break;
      path.push(taken);
    }
    if (path.length === 0) drop('no labelled steps');
    return path.length === 0 ? others : [{ prompt, steps: path }, ...others];
  },
};

function ratedStep(completion: unknown): Step | undefined {
  if (!isRow(completion) || typeof completion.text !== 'string') return undefined;
  const { rating } = completion;
  return rating === -1 || rating === 0 || rating === 1 ? { text: completion.text, label: rating } : undefined;
}

/** PRMBench: a deliberately corrupted solution; `error_steps` counts from 1. */
const prmbench: Dialect = {
  name: 'PRMBench',
  shape: 'steps',
  needs: ['prompt', 'steps', 'stepLabels'],
  speaks: (row) => Array.isArray(row.modified_process) && Array.isArray(row.error_steps),
  read(row, { drop }) {
    const process = row.modified_process as unknown[];
    const wrong = new Set(row.error_steps as number[]);
    if ([...wrong].some((step) => step < 1 || step > process.length)) {
      drop('step label out of range');
      return [];
    }
    const question = row.modified_question ?? row.question;
    if (typeof question !== 'string') throw new RowProblem('"modified_question" must be text');
    const steps = process.map((text, index) => ({ text: stepText(text), label: verdict(!wrong.has(index + 1)) }));
    return steps.length === 0 ? [] : [{ prompt: say(question), steps }];
  },
};

/** BIG-Bench Mistake: steps up to the first mistake are right; later ones were not judged. */
const mistakes: Dialect = {
  name: 'BIG-Bench Mistake',
  shape: 'steps',
  needs: ['prompt', 'steps', 'stepLabels'],
  speaks: (row, columns) => columns.has('prompt') && Array.isArray(row.steps) && Object.hasOwn(row, 'mistake_index'),
  read(row, { columns }) {
    const mistake = typeof row.mistake_index === 'number' ? row.mistake_index : Number.POSITIVE_INFINITY;
    const judged = (row.steps as unknown[]).slice(0, mistake + 1);
    const steps = judged.map((text, index) => ({ text: stepText(text), label: verdict(index !== mistake) }));
    return steps.length === 0 ? [] : [{ prompt: columns.prompt(row), steps }];
  },
};

const stepwise: Dialect = {
  name: 'steps and labels',
  shape: 'steps',
  needs: ['prompt', 'steps', 'stepLabels'],
  speaks: (row, columns) =>
    columns.has('prompt', 'steps', 'stepLabels') &&
    Array.isArray(columns.get(row, 'steps')) &&
    Array.isArray(columns.get(row, 'stepLabels')),
  read(row, { columns, drop }) {
    const texts = columns.need(row, 'steps') as unknown[];
    const labels = columns.need(row, 'stepLabels') as unknown[];
    if (texts.length !== labels.length) throw new RowProblem(`${texts.length} steps but ${labels.length} labels`);
    if (texts.length === 0) drop('no labelled steps');
    if (texts.length === 0) return [];
    const steps = texts.map((text, index) => ({ text: stepText(text), label: stepLabel(labels[index]) }));
    return [{ prompt: columns.prompt(row), steps }];
  },
};

/** Steps that carry their labels themselves: what `attune tasks generate --kind steps` writes. */
const labelledSteps: Dialect = {
  name: 'labelled steps',
  shape: 'steps',
  needs: ['prompt', 'steps'],
  speaks: (row, columns) =>
    columns.has('prompt', 'steps') && listOf(columns.get(row, 'steps')).some((step) => isRow(step) && 'label' in step),
  read(row, { columns, drop }) {
    const steps = listOf(columns.need(row, 'steps')).map((step) => {
      if (!isRow(step)) throw new RowProblem('a step must have "text" and "label"');
      return { text: stepText(step.text), label: stepLabel(step.label ?? null) };
    });
    if (steps.length === 0) drop('no labelled steps');
    return steps.length === 0 ? [] : [{ prompt: columns.prompt(row), steps }];
  },
};

const listOf = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);

function stepText(value: unknown): string {
  if (typeof value !== 'string') throw new RowProblem('a step must be text');
  return value;
}

function stepLabel(value: unknown): StepLabel | null {
  if (value === null) return null;
  if (typeof value === 'boolean') return verdict(value);
  if (value === -1 || value === 0 || value === 1) return value;
  throw new RowProblem(`a step's label must be -1, 0, 1, true, false or null, this is ${JSON.stringify(value)}`);
}

const verdict = (right: boolean): StepLabel => (right ? 1 : -1);

export const stepDialects: readonly Dialect[] = [prm800k, prmbench, mistakes, stepwise, labelledSteps];
