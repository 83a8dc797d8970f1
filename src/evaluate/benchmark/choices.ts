/**
 * Multiple choice by log-prob: the model reads each choice after the prompt, and the most likely one counts as its
 * answer. The metrics are those of lm-evaluation-harness: `acc` compares Σ log π, `acc_norm` divides it by the choice's
 * characters, `acc_bytes` by its UTF-8 bytes. Ties go to the first choice.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { computeDealt } from '../../dist/deal.ts';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { responseLogprobs } from '../../models/index.ts';
import type { Suite } from '../suites/open.ts';
import type { ChoiceFormat, ChoiceQuestion } from '../suites/question.ts';
import { type Answered, type AskingOptions, type Outcome, type Player, writePrompts } from './asking.ts';
import { QuestionWriter } from './prompts.ts';

const questionsAtOnce = 32;

/** Asks the questions of a suite of choices. */
export async function askChoices(suite: Suite, player: Player, options: AskingOptions): Promise<Answered> {
  const format = suite.format as ChoiceFormat;
  const { model, tokenizer } = player;
  const writer = new QuestionWriter(format, tokenizer, options.style);
  const choicesOf = (question: unknown) => format.continuations(question as ChoiceQuestion);
  // An upper bound of a choice's tokens: tokenised alone, plus one for the boundary to the prompt.
  const roomFor = (question: unknown) =>
    1 + Math.max(...choicesOf(question).map((choice) => tokenizer.encode(` ${choice}`).length));
  const { written, shortened, tooLong } = await writePrompts(suite, player, writer, roomFor, options);
  const bar = options.progress?.start('questions', suite.questions.length, 'questions');
  const starts = Array.from(
    { length: Math.ceil(suite.questions.length / questionsAtOnce) },
    (_, i) => i * questionsAtOnce,
  );
  const questionsFrom = (start: number) => suite.questions.slice(start, start + questionsAtOnce) as ChoiceQuestion[];
  const tokensFrom = (start: number) =>
    written.slice(start, start + questionsAtOnce).reduce((sum, prompt) => sum + (prompt?.ids.length ?? 0), 0);
  const ask = async (start: number): Promise<Outcome[]> => {
    options.signal?.throwIfAborted();
    const questions = questionsFrom(start);
    const sequences = questions.flatMap((question, i) => {
      const prompt = written[start + i];
      return prompt === undefined ? [] : choicesOf(question).map((choice) => writer.withAnswer(prompt.text, choice));
    });
    const logprobs = responseLogprobs(model.decoder, sequences);
    bar?.advance(questions.length);
    await turn();
    return questions.map((question, i) => {
      const prompt = written[start + i];
      const choices = choicesOf(question);
      const own = prompt === undefined ? undefined : logprobs.splice(0, choices.length);
      return outcomeOf(question, choices, own, prompt?.text);
    });
  };
  try {
    const outcomes = (await computeDealt(await joinWorld(), starts, tokensFrom, ask)).flat();
    return { outcomes, shortened, tooLong };
  } finally {
    bar?.done();
  }
}

function outcomeOf(
  question: ChoiceQuestion,
  choices: readonly string[],
  logprobs: readonly number[] | undefined,
  prompt: string | undefined,
): Outcome {
  const { right } = question;
  if (logprobs?.some(Number.isNaN))
    throw new UserError('The model gives a choice a log-prob that is not a number: its weights are damaged.');
  const best = logprobs && bestChoices(logprobs, choices);
  const score = (chosen: number | undefined) => Number(chosen === right);
  return {
    scores: { acc: score(best?.plain), acc_norm: score(best?.perCharacter), acc_bytes: score(best?.perByte) },
    sample: {
      prompt: prompt ?? null,
      choices,
      right,
      logprobs: logprobs ?? null,
      chosen: best?.plain ?? null,
      chosen_norm: best?.perCharacter ?? null,
      chosen_bytes: best?.perByte ?? null,
    },
  };
}

/** The most likely choice under each normalisation. */
export function bestChoices(logprobs: readonly number[], choices: readonly string[]) {
  const best = (lengthOf: (choice: string) => number) => {
    const values = logprobs.map((logprob, i) => logprob / lengthOf(choices[i] as string));
    return values.indexOf(Math.max(...values));
  };
  return {
    plain: best(() => 1),
    // Code points, as in Python's len.
    perCharacter: best((choice) => [...choice].length),
    perByte: best((choice) => Buffer.byteLength(choice)),
  };
}
