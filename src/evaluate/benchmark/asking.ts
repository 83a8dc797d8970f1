/** What is needed to ask one model all questions of a suite: prompts that fit it, and the scoring of its answers. */
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

/** How a suite is asked, the same for every model. */
export interface AskingOptions {
  style: PromptStyle;
  /** The number of few-shot examples per question. `shotPool` holds the questions they are drawn from. */
  shots: number;
  shotPool: readonly Question[];
  /** The number of sampled responses besides the greedy one; 0 = none. */
  samples: number;
  /** pass@k and maj@k are reported for powers of two up to this, and for this. */
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

/** One question's outcome: a number from 0 to 1 for each metric, and the fields for the samples file. */
export interface Outcome {
  scores: Record<string, number>;
  /** For metrics that are means over parts of questions: the number of parts. */
  weights?: Record<string, number>;
  sample: Record<string, unknown>;
}

/** Outcomes in the order of the questions, and counts of what did not fit. */
export interface Answered {
  outcomes: Outcome[];
  /** Questions with fewer examples than requested, because they do not fit the model's context. */
  shortened: number;
  /** Questions that do not fit the context at all. They count as wrong. */
  tooLong: number;
  /** Greedy responses cut off at the token limit; undefined if nothing is generated. */
  cutOff?: number;
}

/** A question as written for a model; undefined if it does not fit even without examples. */
export type Written = WrittenPrompt & { shots: number };

/** All prompts of a suite, with as many examples as leave room for the answer. `roomFor` gives that room in tokens. */
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
