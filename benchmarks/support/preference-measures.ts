/** What the studies of direct alignment measure a policy by: held-out pairs, the verifier, the drift from the start. */
import { existsSync } from 'node:fs';
import { meanOf } from '../../src/algorithms/index.ts';
import { type PromptedResponse, responseLogprobs } from '../../src/models/decoder/responses.ts';
import { loadModel, type Model, type SampledResponse, Sampler } from '../../src/models/index.ts';
import { type PolicyPrompt, PromptWriter } from '../../src/rollouts/prompts.ts';
import { taskEvalPrompts } from '../../src/rollouts/task-prompts.ts';
import { task } from '../../src/tasks/index.ts';
import { Tokenizer } from '../../src/text/index.ts';
import { buildPreferences } from '../../src/workflows/preferences/build.ts';
import { pairsOf } from '../../src/workflows/preferences/pairs.ts';

/** What both studies take from the command line. */
export interface StudyFlags {
  model: string;
  tasks: string;
  /** Problems whose answers make the training pairs, and answers to each. */
  prompts: string;
  samples: string;
  'held-out': string;
  'max-new-tokens': string;
}

export interface Figures {
  /** Share of the held-out pairs whose right answer is the likelier one. */
  likelier: number;
  /** Share of them whose right answer gained on the wrong one, against the start: ½ where nothing changed. */
  gained: number;
  /** Shares of greedy and of sampled answers that the verifier finds right. */
  greedy: number;
  sampled: number;
  /** KL(policy‖start), nats per response, from the policy's own samples. */
  kl: number;
}

/** Samples of each held-out problem by which a policy is measured, and those that its held-out pair is chosen from. */
const measuredSamples = 2;
const pairSamples = 8;
const heldOutSeed = 1_000;

/** Held-out problems (the tasks' test part, which no training sees) and the pairs that the start itself wrote to them. */
export class Measures implements Disposable {
  readonly #start: Model;
  readonly #tokenizer: Tokenizer;
  readonly #prompts: readonly PolicyPrompt[];
  readonly #maxNewTokens: number;
  #pairs: readonly PromptedResponse[] = [];
  #startLeads: readonly number[] = [];

  private constructor(start: Model, tokenizer: Tokenizer, flags: StudyFlags) {
    this.#start = start;
    this.#tokenizer = tokenizer;
    const count = Number(flags['held-out']);
    this.#prompts = taskEvalPrompts(new PromptWriter(tokenizer), { tasks: flags.tasks, seed: heldOutSeed, count });
    this.#maxNewTokens = Number(flags['max-new-tokens']);
  }

  static async open(flags: StudyFlags): Promise<Measures> {
    const start = await loadModel(flags.model, { dtype: 'float32' });
    const measures = new Measures(start, await Tokenizer.load(flags.model), flags);
    const replies = await measures.#sample(start, { temperature: 1, samples: pairSamples });
    measures.#pairs = replies.flatMap((group, i) => {
      const scored = group.map((reply) => ({ reply, text: reply.ids.join(), score: measures.#score(reply, i) }));
      return pairsOf(scored, { pairs: 'best-worst', minGap: 0 })
        .flat()
        .map(({ reply }) => measures.#answered(i, reply));
    });
    measures.#startLeads = measures.#leads(start);
    return measures;
  }

  get start(): Model {
    return this.#start;
  }

  async of(policy: Model): Promise<Figures> {
    const greedy = await this.#sample(policy, { temperature: 0, samples: 1 });
    const sampled = await this.#sample(policy, { temperature: 1, samples: measuredSamples });
    const leads = this.#leads(policy);
    return {
      likelier: meanOf(leads.map((lead) => Number(lead > 0))),
      gained: meanOf(leads.map((lead, i) => (1 + Math.sign(lead - (this.#startLeads[i] as number))) / 2)),
      greedy: this.#right(greedy),
      sampled: this.#right(sampled),
      kl: this.#divergence(sampled),
    };
  }

  [Symbol.dispose](): void {
    this.#start.dispose();
  }

  /** How each held-out pair stands: by how much its right answer is the likelier one. */
  #leads(policy: Model): number[] {
    const lp = responseLogprobs(policy.decoder, this.#pairs);
    return Array.from({ length: lp.length / 2 }, (_, i) => (lp[2 * i] as number) - (lp[2 * i + 1] as number));
  }

  #right(replies: readonly (readonly SampledResponse[])[]): number {
    return meanOf(replies.flatMap((group, i) => group.map((reply) => Number(this.#score(reply, i) === 1))));
  }

  #score({ ids }: SampledResponse, prompt: number): number {
    const { example } = this.#prompts[prompt] as PolicyPrompt;
    if (example === undefined) return 0;
    return task(example.task).score(this.#tokenizer.decode(ids, { skipSpecialTokens: true }), example);
  }

  #divergence(replies: readonly (readonly SampledResponse[])[]): number {
    const own = replies.flat().map(({ logprobs }) => logprobs.reduce((sum, lp) => sum + lp, 0));
    const answers = replies.flatMap((group, i) => group.map((reply) => this.#answered(i, reply)));
    const reference = responseLogprobs(this.#start.decoder, answers);
    return meanOf(own.map((lp, i) => lp - (reference[i] as number)));
  }

  #answered(prompt: number, { ids }: SampledResponse): PromptedResponse {
    const { ids: asked } = this.#prompts[prompt] as PolicyPrompt;
    return { ids: Int32Array.from([...asked, ...ids]), promptLength: asked.length };
  }

  async #sample(policy: Model, { temperature, samples }: { temperature: number; samples: number }) {
    const wasTraining = policy.decoder.training;
    const sampler = new Sampler(policy.train(false));
    try {
      const requests = this.#prompts.map(({ ids: prompt }, i) => ({
        prompt,
        samples,
        temperature,
        maxNewTokens: this.#maxNewTokens,
        stopIds: this.#tokenizer.eosIds,
        seed: heldOutSeed + i * pairSamples,
      }));
      return await sampler.generate(requests);
    } finally {
      sampler.dispose();
      policy.train(wasTraining);
    }
  }
}

/** Pairs that the start wrote itself, ranked by the verifier; a file that is there is taken as it is. */
export async function ownPairs(flags: StudyFlags, seed: number, output: string): Promise<void> {
  if (existsSync(output)) return;
  await buildPreferences({
    model: flags.model,
    task: flags.tasks,
    prompts: Number(flags.prompts),
    samples: Number(flags.samples),
    maxNewTokens: Number(flags['max-new-tokens']),
    topP: 1,
    seed,
    output,
  });
}

/** `--name value` pairs over defaults. */
export function flagsOf<T extends Record<string, string>>(args: readonly string[], defaults: T): T {
  const given = Object.fromEntries(
    args.flatMap((arg, i) => (arg.startsWith('--') ? [[arg.slice(2), args[i + 1] ?? '']] : [])),
  );
  return { ...defaults, ...given };
}
