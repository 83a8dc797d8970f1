/**
 * Rows of solutions with a label on each step, without human labels. The policy continues several times from the end of
 * every step, and the share of right continuations decides the label (Wang et al. 2024, "Math-Shepherd: Verify and
 * Reinforce LLMs Step-by-step without Human Annotations"). For `attune train reward --type process`.
 */
import { isRight } from '../../rewards/index.ts';
import type { PolicyPrompt } from '../../rollouts/prompts.ts';
import { rewardItem, rolloutSeeds, sampleRollouts } from '../../rollouts/rollout.ts';
import type { Message } from '../../text/index.ts';
import { asWritten, distinctResponses, type RowBatch, type RowContext, type RowMaker } from './rows.ts';

/** One row of the file. `share` is the share of right continuations. */
export interface StepsRow {
  prompt: string | readonly Message[];
  steps: { text: string; label: 1 | -1; share: number }[];
}

export interface StepsSummary {
  kind: 'steps';
  solutions: number;
  steps: number;
  /** Number of steps from which the right answer was reached. */
  rightSteps: number;
  /** Number of solutions in which right steps are followed by wrong ones. */
  mixed: number;
}

/** The beginning of a response up to the end of a step. */
interface Beginning {
  prompt: PolicyPrompt;
  step: string;
  text: string;
  /** The whole response, with nothing left to continue. */
  isWhole: boolean;
}

export function stepRows(context: RowContext): RowMaker<StepsSummary> {
  const { config } = context;
  const { samples, stepThreshold, stepSeparator = '\n' } = config;
  const summary: StepsSummary = { kind: 'steps', solutions: 0, steps: 0, rightSteps: 0, mixed: 0 };
  const isGood = (share: number) => (stepThreshold === undefined ? share > 0 : share >= stepThreshold);
  return {
    async rows(batch: RowBatch) {
      const solutions = batch.prompts.map((prompt, place) =>
        distinctResponses(batch, place, samples)
          .map(({ response }) => beginningsOf(prompt, response, stepSeparator))
          .filter((beginnings) => beginnings.length > 0),
      );
      const shares = await sharesOf(context, batch, solutions.flat(2));
      let next = 0;
      return solutions.map((ofPrompt) =>
        ofPrompt.map((beginnings): StepsRow => {
          const steps = beginnings.map(({ step }) => {
            const share = shares[next++] as number;
            return { text: step, label: isGood(share) ? (1 as const) : (-1 as const), share };
          });
          const right = steps.filter(({ label }) => label === 1).length;
          summary.solutions++;
          summary.steps += steps.length;
          summary.rightSteps += right;
          if (right > 0 && right < steps.length) summary.mixed++;
          return { prompt: asWritten((beginnings[0] as Beginning).prompt.messages), steps };
        }),
      );
    },
    summary: () => summary,
  };
}

/** The beginnings of a response, one after each step. Empty steps are skipped. */
export function beginningsOf(prompt: PolicyPrompt, response: string, separator: string): Beginning[] {
  const pieces = response.split(separator);
  const beginnings = pieces.map((step, i) => ({
    prompt,
    step,
    text: pieces.slice(0, i + 1).join(separator) + (i + 1 < pieces.length ? separator : ''),
    isWhole: false,
  }));
  const steps = beginnings.filter(({ step }) => step.trim() !== '');
  const last = steps.at(-1);
  if (last !== undefined) Object.assign(last, { isWhole: true, text: response });
  return steps;
}

/**
 * For each beginning, the share of its continuations that reach the right answer. A whole response counts as its only
 * continuation.
 */
async function sharesOf(
  { config, sampler, tokenizer }: RowContext,
  { first, signal }: RowBatch,
  beginnings: readonly Beginning[],
): Promise<number[]> {
  const groupSize = config.continuations ?? 4;
  const open = beginnings.filter(({ isWhole }) => !isWhole);
  const prompts = open.map(({ prompt, text }) => ({
    ...prompt,
    ids: Int32Array.from([...prompt.ids, ...tokenizer.encode(text)]),
  }));
  const seeds = rolloutSeeds(config.seed, 'continuations', first);
  const continued = await sampleRollouts(sampler, tokenizer, prompts, { ...config, groupSize, seeds, signal });
  const right = (prompt: PolicyPrompt, response: string) => isRight(rewardItem({ prompt, response })) === true;
  const counts = new Map(
    open.map((beginning, i) => {
      const own = continued.slice(i * groupSize, (i + 1) * groupSize);
      const reached = own.filter(({ response }) => right(beginning.prompt, beginning.text + response));
      return [beginning, reached.length / groupSize];
    }),
  );
  return beginnings.map((each) => counts.get(each) ?? Number(right(each.prompt, each.text)));
}
