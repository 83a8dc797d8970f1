/**
 * What a policy is worth on held-out prompts: its rewards, how far it is from the reference, how often it beats another
 * policy, pass@k, lengths, and answers side by side.
 *
 *     const result = await evaluatePolicy({ model, tokenizer, prompts, scorer, opponent: { model: base, tokenizer } });
 *     result.summary.accuracy, result.summary.win_rate
 */
import { meanOf, meanPassAtK } from '../algorithms/index.ts';
import { UserError } from '../errors.ts';
import { type Model, packSequences, Sampler, scoredTokens, tokenLogprobs } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { isRight, type RewardItem, type RewardScorer, scoreParts } from '../rewards/index.ts';
import type { Example } from '../tasks/index.ts';
import { noGrad, scope } from '../tensor/index.ts';
import { ChatFormat, type FormatOptions, type Message, type Tokenizer } from '../text/index.ts';
import { type Summary, summarise } from './summary.ts';

export interface EvaluationPrompt {
  messages: readonly Message[];
  example?: Example;
  answer?: string;
}

export interface Player {
  model: Model;
  tokenizer: Tokenizer;
}

export interface EvaluatePolicyOptions extends Player, FormatOptions {
  prompts: readonly EvaluationPrompt[];
  scorer: RewardScorer;
  /** The model that the KL is measured against; it must have the same tokenizer. */
  reference?: Model;
  /** Another policy, answering the same prompts. */
  opponent?: Player;
  /** Sampled answers per prompt; the greedy one comes besides. */
  samples?: number;
  maxNewTokens?: number;
  temperature?: number;
  topP?: number;
  seed?: number;
  progress?: Progress;
  signal?: AbortSignal;
}

export interface Answer {
  text: string;
  reward: number;
  parts: Record<string, number>;
  correct?: boolean;
  lengthTokens: number;
  ended: boolean;
}

export interface PolicyEvaluation {
  summary: PolicySummary;
  prompts: { prompt: string; greedy: Answer; sampled: Answer[]; opponent?: Answer }[];
}

export interface PolicySummary {
  prompts: number;
  reward: Summary;
  reward_parts: Record<string, number>;
  sampled_reward?: Summary;
  accuracy?: number;
  pass_at_k?: Record<string, number>;
  length_tokens: Summary;
  ended: number;
  /** Over sampled answers (greedy ones where none are sampled): Σ_t log π − log πref of a response, and its mean per token. */
  kl?: { per_response: number; per_token: number };
  /** Greedy answers against the opponent's; a tie counts half. */
  win_rate?: { rate: number; wins: number; ties: number; losses: number; low: number; high: number };
}

interface Written {
  promptIds: Int32Array;
  ids: Int32Array;
  answer: Answer;
}

export async function evaluatePolicy(options: EvaluatePolicyOptions): Promise<PolicyEvaluation> {
  const { prompts, samples = 8, temperature = 1, opponent, reference } = options;
  if (prompts.length === 0) throw new UserError('There are no prompts to evaluate on.');
  const greedy = (await answers(options, options, { samples: 1, temperature: 0 })).map(([one]) => one as Written);
  const sampled = samples === 0 ? prompts.map(() => []) : await answers(options, options, { samples, temperature });
  const others =
    opponent === undefined
      ? undefined
      : (await answers(opponent, options, { samples: 1, temperature: 0 })).map(([one]) => (one as Written).answer);
  const own = greedy.map(({ answer }) => answer);
  const drawn = sampled.map((group) => group.map(({ answer }) => answer));
  const summary: PolicySummary = {
    prompts: prompts.length,
    reward: summarise(own.map(({ reward }) => reward)),
    reward_parts: partMeans(own),
    ...(samples === 0 ? {} : { sampled_reward: summarise(drawn.flat().map(({ reward }) => reward)) }),
    ...correctness(own, drawn),
    length_tokens: summarise(own.map(({ lengthTokens }) => lengthTokens)),
    ended: meanOf(own.map(({ ended }) => Number(ended))),
    ...(reference === undefined
      ? {}
      : { kl: divergence(options.model, reference, samples === 0 ? greedy : sampled.flat(), temperature) }),
    ...(others === undefined ? {} : { win_rate: winRate(own, others) }),
  };
  return {
    summary,
    prompts: prompts.map(({ messages }, i) => ({
      prompt: messages.map(({ content }) => content).join('\n\n'),
      greedy: own[i] as Answer,
      sampled: drawn[i] as Answer[],
      ...(others === undefined ? {} : { opponent: others[i] as Answer }),
    })),
  };
}

/** Answers of one player to all prompts, scored; a group per prompt. */
async function answers(
  { model, tokenizer }: Player,
  options: EvaluatePolicyOptions,
  draw: { samples: number; temperature: number },
): Promise<Written[][]> {
  const { prompts, scorer, maxNewTokens = 512, topP = 1, seed = 1, signal, progress } = options;
  const format = new ChatFormat(tokenizer, options);
  const read = prompts.map(({ messages }) =>
    Int32Array.from([...format.bos, ...tokenizer.encode(format.prompt(messages))]),
  );
  using sampler = new Sampler(model, { tokenizer });
  const requests = read.map((prompt, i) => ({
    ...draw,
    prompt,
    maxNewTokens,
    stopIds: tokenizer.eosIds,
    seed: seed + i,
    ...(draw.temperature > 0 && topP < 1 ? { topP } : {}),
  }));
  const generations = await sampler.generate(requests, { signal, progress });
  signal?.throwIfAborted();
  const written = generations.map((group, i) =>
    group.map(({ ids, finish }) => ({
      promptIds: read[i] as Int32Array,
      ids: Int32Array.from(ids),
      text: tokenizer.decode(ids, { skipSpecialTokens: true }),
      ended: finish === 'stop',
    })),
  );
  const items = written.flatMap((group, i) => group.map(({ text }) => itemOf(prompts[i] as EvaluationPrompt, text)));
  const { total, parts } = await scoreParts(scorer, items, { signal });
  let at = 0;
  return written.map((group) =>
    group.map(({ promptIds, ids, text, ended }) => {
      const i = at++;
      const answer: Answer = {
        text,
        reward: total[i] as number,
        parts: Object.fromEntries(Object.entries(parts).map(([name, values]) => [name, values[i] as number])),
        correct: isRight(items[i] as RewardItem),
        lengthTokens: ids.length,
        ended,
      };
      return { promptIds, ids, answer };
    }),
  );
}

function itemOf({ messages, example, answer }: EvaluationPrompt, response: string): RewardItem {
  return {
    prompt: messages,
    response,
    ...(example === undefined ? {} : { example }),
    ...(answer === undefined ? {} : { fields: { answer } }),
  };
}

function correctness(greedy: readonly Answer[], sampled: readonly (readonly Answer[])[]): Partial<PolicySummary> {
  if (greedy.some(({ correct }) => correct === undefined)) return {};
  const accuracy = meanOf(greedy.map(({ correct }) => Number(correct)));
  const most = Math.min(...sampled.map(({ length }) => length));
  if (most === 0) return { accuracy };
  const right = sampled.map((group) => group.map(({ correct }) => correct === true));
  const passes: Record<string, number> = {};
  for (let k = 1; k <= most; k *= 2) passes[k] = meanPassAtK(right, k);
  return { accuracy, pass_at_k: passes };
}

function partMeans(own: readonly Answer[]): Record<string, number> {
  const names = [...new Set(own.flatMap(({ parts }) => Object.keys(parts)))];
  return Object.fromEntries(names.map((name) => [name, meanOf(own.map(({ parts }) => parts[name] ?? 0))]));
}

/** A win rate with its 95 % interval by Wilson's score, which stays inside 0 and 1 for small numbers. */
export function winRate(
  own: readonly Pick<Answer, 'reward'>[],
  others: readonly Pick<Answer, 'reward'>[],
): NonNullable<PolicySummary['win_rate']> {
  const signs = own.map(({ reward }, i) => Math.sign(reward - (others[i]?.reward ?? 0)));
  const wins = signs.filter((sign) => sign > 0).length;
  const losses = signs.filter((sign) => sign < 0).length;
  const ties = signs.length - wins - losses;
  const n = signs.length;
  const rate = (wins + ties / 2) / n;
  const z = 1.96;
  const centre = (rate + (z * z) / (2 * n)) / (1 + (z * z) / n);
  const half = (z * Math.sqrt((rate * (1 - rate)) / n + (z * z) / (4 * n * n))) / (1 + (z * z) / n);
  return { rate, wins, ties, losses, low: centre - half, high: centre + half };
}

/** KL(policy‖reference) by k1 on the policy's own answers. */
function divergence(policy: Model, reference: Model, written: readonly Written[], temperature: number) {
  if (policy.decoder.spec.vocabSize !== reference.decoder.spec.vocabSize)
    throw new UserError('The KL needs a reference with the same vocabulary as the policy.');
  const [own, other] = [policy, reference].map((model) => responseSums(model, written, temperature)) as [
    number[],
    number[],
  ];
  const total = own.reduce((sum, value, i) => sum + value - (other[i] as number), 0);
  const tokens = written.reduce((sum, { ids }) => sum + ids.length, 0);
  return { per_response: total / written.length, per_token: total / tokens };
}

/** Σ log π of each answer, a few sequences at a time. */
function responseSums(model: Model, written: readonly Written[], temperature: number): number[] {
  const perPass = 16;
  const sums: number[] = [];
  for (let start = 0; start < written.length; start += perPass) {
    const part = written.slice(start, start + perPass);
    const logprobs = scope(() =>
      noGrad(() => {
        const batch = packSequences(
          part.map(({ promptIds, ids }) => [...promptIds, ...ids]),
          model.device,
        );
        const mask = part.flatMap(({ promptIds, ids }) => [...promptIds.map(() => 0), ...ids.map(() => 1)]);
        const tokens = scoredTokens(batch.starts, mask);
        return tokenLogprobs(model.decoder, model.decoder.forward(batch), batch, tokens, temperature).logp.numbers();
      }),
    );
    let at = 0;
    for (const { ids } of part) {
      sums.push(logprobs.slice(at, at + ids.length).reduce((sum, value) => sum + value, 0));
      at += ids.length;
    }
  }
  return sums;
}
