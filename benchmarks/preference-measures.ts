/** What the studies of direct alignment measure a policy by: held-out pairs, the verifier, the drift from the start. */
import { openDataset, type TokenRecord, tokenise } from '../src/data/index.ts';
import { UserError } from '../src/errors.ts';
import { type Model, Sampler } from '../src/models/index.ts';
import { preferenceRows, type Style, task } from '../src/tasks/index.ts';
import type { Tokenizer } from '../src/text/index.ts';
import { buildPreferences } from '../src/trainers/build-preferences.ts';
import { type PolicyPrompt, PromptWriter, TaskPrompts, taskEvalPrompts } from '../src/trainers/policy-prompts.ts';
import { type PromptedResponse, responseLogprobs } from '../src/trainers/responses.ts';

export interface MeasureOptions {
  tasks: string;
  heldOut: number;
  maxNewTokens: number;
  seed: number;
  /** How the held-out solutions are written: as the model was taught to. */
  style: Style;
  /** `test`: problems that no training sees; `train`: those it does, which tells learning from generalising. */
  part: 'train' | 'test';
}

export class Measures {
  readonly #tokenizer: Tokenizer;
  readonly #pairs: PromptedResponse[];
  readonly #prompts: PolicyPrompt[];
  readonly #options: MeasureOptions;

  private constructor(tokenizer: Tokenizer, pairs: PromptedResponse[], options: MeasureOptions) {
    this.#tokenizer = tokenizer;
    this.#pairs = pairs;
    this.#options = options;
    const { tasks, seed, heldOut: count } = options;
    const writer = new PromptWriter(tokenizer);
    this.#prompts =
      options.part === 'test'
        ? taskEvalPrompts(writer, { tasks, seed, count })
        : new TaskPrompts(writer, { tasks, seed }).take(count);
  }

  /** Right solutions beside ones with a slip, and problems, none of which training sees (the tasks' test part). */
  static async open(tokenizer: Tokenizer, options: MeasureOptions): Promise<Measures> {
    const { tasks, seed, heldOut: count, style, part } = options;
    const rows = Array.from(preferenceRows({ tasks, seed, count, style, part }), (row) => ({ ...row }));
    await using store = await tokenise(await openDataset(rows, { shape: 'preference' }), tokenizer, { cache: false });
    const records: TokenRecord[] = await store.records(Array.from({ length: store.length }, (_, i) => i));
    return new Measures(
      tokenizer,
      records.flatMap(({ sequences }) => sequences),
      options,
    );
  }

  /** The share of pairs whose right solution is the likelier one, per token. */
  preferenceAccuracy(policy: Model): number {
    const means = responseLogprobs(policy, this.#pairs).map((lp, i) => {
      const { ids, promptLength } = this.#pairs[i] as PromptedResponse;
      return lp / (ids.length - promptLength);
    });
    const pairs = Array.from({ length: means.length / 2 }, (_, i) => i);
    return pairs.filter((i) => (means[2 * i] as number) > (means[2 * i + 1] as number)).length / pairs.length;
  }

  /** The share of greedy answers that the verifier finds right. */
  async verifierAccuracy(policy: Model): Promise<number> {
    const replies = await this.#sample(policy, 0);
    const right = replies.filter(({ ids }, i) => {
      const { example } = this.#prompts[i] as PolicyPrompt;
      if (example === undefined) return false;
      return task(example.task).score(this.#tokenizer.decode(ids, { skipSpecialTokens: true }), example) === 1;
    });
    return right.length / replies.length;
  }

  /** KL(policy‖start) per response, from the policy's own samples. */
  async divergence(policy: Model, start: Model): Promise<number> {
    const replies = await this.#sample(policy, 1);
    const responses = replies.map(({ ids }, i) => {
      const prompt = (this.#prompts[i] as PolicyPrompt).ids;
      return { ids: Int32Array.from([...prompt, ...ids]), promptLength: prompt.length };
    });
    const reference = responseLogprobs(start, responses);
    const drift = responseLogprobs(policy, responses).map((lp, i) => lp - (reference[i] as number));
    return drift.reduce((sum, value) => sum + value, 0) / drift.length;
  }

  async #sample(policy: Model, temperature: number) {
    const { maxNewTokens, seed } = this.#options;
    const wasTraining = policy.decoder.training;
    const sampler = new Sampler(policy.train(false));
    try {
      const requests = this.#prompts.map(({ ids: prompt }, i) => ({
        prompt,
        maxNewTokens,
        temperature,
        stopIds: this.#tokenizer.eosIds,
        seed: seed + i,
      }));
      return (await sampler.generate(requests)).map(([reply]) => reply as NonNullable<typeof reply>);
    } finally {
      sampler.dispose();
      policy.train(wasTraining);
    }
  }
}

/** The same of both studies, from their flags. */
export function openMeasures(
  tokenizer: Tokenizer,
  flags: { tasks: string; 'held-out': string; 'max-new-tokens': string; style: string; part: string },
): Promise<Measures> {
  return Measures.open(tokenizer, {
    tasks: flags.tasks,
    heldOut: Number(flags['held-out']),
    maxNewTokens: Number(flags['max-new-tokens']),
    seed: 1_000,
    style: flags.style as Style,
    part: flags.part as MeasureOptions['part'],
  });
}

export interface PairFlags {
  model: string;
  tasks: string;
  prompts: string;
  samples: string;
  'max-new-tokens': string;
  /** A program that scores, in place of the verifier. */
  'reward-module': string;
}

/** Pairs that the start wrote itself, ranked by the verifier. */
export async function ownPairs(flags: PairFlags, seed: number, output: string): Promise<void> {
  const module = flags['reward-module'];
  const made = await buildPreferences({
    model: flags.model,
    task: flags.tasks,
    prompts: Number(flags.prompts),
    samples: Number(flags.samples),
    maxNewTokens: Number(flags['max-new-tokens']),
    seed,
    output,
    ...(module === '' ? {} : { rewardModule: module }),
  });
  if (made.pairs === 0)
    throw new UserError(
      `${flags.model} gave no pairs: its answers to ${flags.tasks} all score alike. Take easier tasks.`,
    );
}

/** `--name value` pairs over defaults. */
export function flagsOf<T extends Record<string, string>>(args: readonly string[], defaults: T): T {
  const given = Object.fromEntries(
    args.flatMap((arg, i) => (arg.startsWith('--') ? [[arg.slice(2), args[i + 1] ?? '']] : [])),
  );
  return { ...defaults, ...given };
}

export const meanOf = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** Half the distance between the lowest and the highest. */
export const spreadOf = (values: readonly number[]) => (Math.max(...values) - Math.min(...values)) / 2;
