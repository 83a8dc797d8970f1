/** What one model needs to be asked all questions of a suite: prompts that fit it, and what is judged of its answers. */
import { setImmediate as turn } from 'node:timers/promises';
import type { CacheDtype, Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { Tokenizer } from '../../text/index.ts';
import type { Suite } from '../suites/open.ts';
import type { Question } from '../suites/question.ts';
import { shotsFor } from './few-shot.ts';
import type { PromptStyle, QuestionWriter, WrittenPrompt } from './prompts.ts';

/** A model with its tokenizer. */
export interface Player {
  model: Model;
  tokenizer: Tokenizer;
}

/** How a suite is asked; the same for every model. */
export interface AskingOptions {
  style: PromptStyle;
  /** Few-shot examples for each question, and what they are drawn from. */
  shots: number;
  shotPool: readonly Question[];
  /** Responses to draw besides the greedy one; 0 = none. */
  samples: number;
  /** pass@k and maj@k are reported for powers of two up to this, and for it. */
  k: number;
  maxNewTokens: number;
  temperature: number;
  topP: number;
  stop: readonly string[];
  cacheDtype: CacheDtype;
  seed: number;
  progress?: Progress;
  signal?: AbortSignal;
}

/** One question's outcome: a number from 0 to 1 by metric, and what is written to the samples file. */
export interface Outcome {
  scores: Record<string, number>;
  /** Of metrics that are means over parts of questions: how many parts. */
  weights?: Record<string, number>;
  sample: Record<string, unknown>;
}

/** Outcomes in the order of the questions, and what had to be given up. */
export interface Answered {
  outcomes: Outcome[];
  /** Questions that show fewer examples than asked for, since the model has no room for more. */
  shortened: number;
  /** Questions that do not fit the model at all: they count as wrong. */
  tooLong: number;
  /** Greedy responses that were cut at the limit; undefined where nothing is written. */
  cutOff?: number;
}

/** A question as it is put to a model; undefined where it does not fit, even without examples. */
export type Written = WrittenPrompt & { shots: number };

/** All prompts of a suite, with as many examples as leave room for the answer (in tokens, by question). */
export async function writePrompts(
  suite: Suite,
  { model }: Pick<Player, 'model'>,
  writer: QuestionWriter,
  roomFor: (question: Question) => number,
  { shots, shotPool, seed, signal }: AskingOptions,
): Promise<{ written: (Written | undefined)[]; shortened: number; tooLong: number }> {
  const written: (Written | undefined)[] = [];
  const { maxPositions } = model.decoder.spec;
  for (const [i, question] of suite.questions.entries()) {
    if (i % 256 === 255) {
      signal?.throwIfAborted();
      await turn();
    }
    const examples = shotsFor(question, shotPool, shots, seed);
    const most = maxPositions - roomFor(question);
    let prompt = writer.prompt(question, examples);
    while (prompt.ids.length > most && examples.length > 0) {
      examples.shift();
      prompt = writer.prompt(question, examples);
    }
    written.push(prompt.ids.length > most ? undefined : { ...prompt, shots: examples.length });
  }
  return {
    written,
    shortened: written.filter((prompt) => prompt !== undefined && prompt.shots < shots).length,
    tooLong: written.filter((prompt) => prompt === undefined).length,
  };
}
