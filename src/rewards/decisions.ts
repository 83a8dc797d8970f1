/**
 * A reward model's decisions on labelled examples, in one form for all three types. The margin is above 0 if the model
 * was right, and its size is the model's confidence.
 */
import type { Message } from '../text/index.ts';
import type { GradedScore } from './ranking.ts';
import type { RewardModelScorer } from './reward-model.ts';
import type { RewardType } from './reward-notes.ts';
import { promptMessages, type RewardItem, type ScoreOptions } from './scorer.ts';

/** One decision of a reward model, compared with its label. */
export interface Decision {
  /**
   * Above 0 if the model was right. In log-odds: σ(margin) is the probability that the model gave to the true label.
   */
  margin: number;
  /** In characters: the response's length, or for a pair how much longer the chosen response is. */
  length: number;
  source?: string;
  prompt: string;
  /** The responses compared, with their scores. */
  responses: { label: string; text: string; score: number }[];
}

/** A stated probability, and whether the event happened. */
export interface Forecast {
  probability: number;
  happened: boolean;
}

/** All decisions of a reward model on a labelled set, with the inputs of its statistics. */
export interface Decisions {
  decisions: Decision[];
  forecasts: Forecast[];
  /** Every response once, with its score. */
  scores: { prompt: string; response: string; score: number }[];
  /** Responses by problem, if each is right or wrong by itself. */
  groups: GradedScore[][];
}

interface Pair {
  prompt: Message[];
  chosen: string;
  rejected: string;
  source?: string;
}

interface Graded {
  prompt: Message[];
  solution: string;
  correct: boolean;
  group: number;
  source?: string;
}

interface Stepped {
  prompt: Message[];
  steps: { text: string; label: -1 | 0 | 1 | null }[];
  source?: string;
}

/** A reward model, or one whose scoring is dealt over several processes. */
export type DecidingScorer = Pick<RewardModelScorer, 'notes' | 'score' | 'stepLogits'>;

/** Scores pairs and compares the two responses of each. */
async function preferenceDecisions(
  scorer: DecidingScorer,
  pairs: readonly Pair[],
  options?: ScoreOptions,
): Promise<Decisions> {
  const items = pairs.flatMap(({ prompt, chosen, rejected }): RewardItem[] => [
    { prompt, response: chosen },
    { prompt, response: rejected },
  ]);
  const values = await scorer.score(items, options);
  const decisions = pairs.map(({ prompt, chosen, rejected, source }, i): Decision => {
    const [better, worse] = [values[2 * i] as number, values[2 * i + 1] as number];
    return {
      margin: better - worse,
      length: chosen.length - rejected.length,
      ...(source === undefined ? {} : { source }),
      prompt: lastMessage(prompt),
      responses: [
        { label: 'chosen', text: chosen, score: better },
        { label: 'rejected', text: rejected, score: worse },
      ],
    };
  });
  return {
    decisions,
    // The forecast event of a pair is that the response preferred by the model is the chosen one.
    forecasts: decisions.map(({ margin }) => ({ probability: sigmoid(Math.abs(margin)), happened: margin > 0 })),
    scores: scored(items, values),
    groups: [],
  };
}

/** Scores graded solutions and compares each with its grade. */
async function outcomeDecisions(
  scorer: DecidingScorer,
  graded: readonly Graded[],
  options?: ScoreOptions,
): Promise<Decisions> {
  const items = graded.map(({ prompt, solution }): RewardItem => ({ prompt, response: solution }));
  const values = await scorer.score(items, options);
  const groups = new Map<number, GradedScore[]>();
  const decisions = graded.map(({ prompt, solution, correct, source, group }, i): Decision => {
    const score = values[i] as number;
    groups.set(group, [...(groups.get(group) ?? []), { score, correct }]);
    const logit = Math.log(score) - Math.log1p(-score);
    return {
      margin: correct ? logit : -logit,
      length: solution.length,
      ...(source === undefined ? {} : { source }),
      prompt: lastMessage(prompt),
      responses: [{ label: correct ? 'right' : 'wrong', text: solution, score }],
    };
  });
  return {
    decisions,
    forecasts: graded.map(({ correct }, i) => ({ probability: values[i] as number, happened: correct })),
    scores: scored(items, values),
    groups: [...groups.values()],
  };
}

interface ExamplesOf {
  preference: Pair;
  outcome: Graded;
  process: Stepped;
}

/** The decisions on labelled examples of the scorer's own type. */
export function decisionsOf(
  scorer: DecidingScorer,
  examples: readonly ExamplesOf[RewardType][],
  options?: ScoreOptions,
): Promise<Decisions> {
  const { type } = scorer.notes;
  if (type === 'preference') return preferenceDecisions(scorer, examples as Pair[], options);
  if (type === 'outcome') return outcomeDecisions(scorer, examples as Graded[], options);
  return processDecisions(scorer, examples as Stepped[], options);
}

/** One decision per labelled step. A solution is right if none of its steps is labelled wrong. */
async function processDecisions(
  scorer: DecidingScorer,
  solutions: readonly Stepped[],
  options?: ScoreOptions,
): Promise<Decisions> {
  const items = solutions.map(({ prompt, steps }): RewardItem => {
    const texts = steps.map(({ text }) => text);
    return { prompt, response: texts.join('\n'), steps: texts };
  });
  const outputs = await scorer.stepLogits(items, options);
  const scores = await scorer.score(items, options);
  const decisions: Decision[] = [];
  const forecasts: Forecast[] = [];
  const groups = new Map<string, GradedScore[]>();
  for (const [i, { prompt, steps, source }] of solutions.entries()) {
    const logits = outputs[i] as Float32Array;
    const key = lastMessage(prompt);
    const correct = steps.every(({ label }) => label !== -1);
    groups.set(key, [...(groups.get(key) ?? []), { score: scores[i] as number, correct }]);
    // In a text that is too long, the first steps are not read.
    const unread = steps.length - logits.length / 3;
    for (const [step, { text, label }] of steps.entries()) {
      if (label === null || step < unread) continue;
      const probabilities = softmax(logits.subarray(3 * (step - unread), 3 * (step - unread) + 3));
      const given = probabilities[label + 1] as number;
      decisions.push({
        margin: Math.log(given) - Math.log(Math.max(...probabilities.filter((_, c) => c !== label + 1))),
        length: text.length,
        ...(source === undefined ? {} : { source }),
        prompt: [key, ...steps.slice(0, step).map((before) => before.text)].join('\n'),
        responses: [{ label: `step labelled ${label}`, text, score: probabilities[2] as number }],
      });
      forecasts.push({ probability: probabilities[2] as number, happened: label === 1 });
    }
  }
  return {
    decisions,
    forecasts,
    scores: scored(items, scores),
    groups: [...groups.values()],
  };
}

function scored(items: readonly RewardItem[], values: readonly number[]): Decisions['scores'] {
  return items.map(({ prompt, response }, i) => ({
    prompt: lastMessage(promptMessages(prompt)),
    response,
    score: values[i] as number,
  }));
}

const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

function softmax(logits: Float32Array): number[] {
  const top = Math.max(...logits);
  const exps = Array.from(logits, (logit) => Math.exp(logit - top));
  const sum = exps.reduce((a, b) => a + b, 0);
  return exps.map((value) => value / sum);
}

const lastMessage = (messages: readonly Message[]) => messages.at(-1)?.content ?? '';
