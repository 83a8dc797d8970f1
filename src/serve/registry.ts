/** The models that a server offers by name: language models, adapters on them, and reward models. */
import { checkNames, UserError } from '../errors.ts';
import type { ResolveOptions } from '../hub/hub.ts';
import type { ScoreHead } from '../models/decoder/head.ts';
import { loadOptionNames, loadOptionsOf } from '../models/files/load.ts';
import {
  type CacheDtype,
  type LoadOptions,
  loadAdapter,
  loadModel,
  loadTokenizer,
  type Model,
  type Precision,
  Sampler,
} from '../models/index.ts';
import { loadRewardModel, type RewardModelScorer } from '../rewards/index.ts';
import type { Tokenizer } from '../text/index.ts';
import { ApiError } from './api-error.ts';

/** A language model, or one of its adapters, under the name that clients ask for. */
export interface ServedModel {
  name: string;
  model: Model;
  tokenizer: Tokenizer;
  sampler: Sampler;
  /** The adapter's name; null for the base alone. */
  adapter: string | null;
  /** Most tokens of a prompt and its response together. */
  maxTokens: number;
}

/** How models are loaded, and the limits of their samplers. */
export interface RegistryOptions extends LoadOptions, ResolveOptions {
  /** Responses that may wait before the server answers that it is full. */
  maxQueue?: number;
  slots?: number;
  /** Most bytes of a sampler's cache; by default room for all slots at their longest. */
  maxCacheBytes?: number;
  /** Most tokens of a sequence; by default the model's positions, at most 4096 on a CPU and 8192 on a GPU. */
  maxTokens?: number;
  /** As in `SamplerOptions`; for reward models as in `RewardModelOptions`. */
  precision?: Precision;
  /** As in `SamplerOptions`. */
  cacheDtype?: CacheDtype;
}

const ownOptions: Record<Exclude<keyof RegistryOptions, keyof LoadOptions | keyof ResolveOptions>, true> = {
  ...{ maxQueue: true, slots: true, maxCacheBytes: true, maxTokens: true, precision: true, cacheDtype: true },
};

/** The models that a server offers, by name. */
export class Registry {
  readonly #served = new Map<string, ServedModel>();
  readonly #rewards = new Map<string, RewardModelScorer>();
  readonly #owned = new DisposableStack();
  readonly #options: RegistryOptions;

  constructor(options: RegistryOptions = {}) {
    checkNames('Registry', options, [...Object.keys(ownOptions), ...loadOptionNames]);
    this.#options = options;
  }

  get models(): readonly ServedModel[] {
    return [...this.#served.values()];
  }
  get rewardModels(): readonly string[] {
    return [...this.#rewards.keys()];
  }
  get samplers(): readonly Sampler[] {
    return [...new Set(this.models.map(({ sampler }) => sampler))];
  }

  /** Loads a model and offers it under a name. A folder with a trained adapter is that adapter on its base. */
  async add(name: string, source: string): Promise<ServedModel> {
    this.#checkFree(name);
    const tokenizer = await loadTokenizer(source, this.#options.progress);
    const model = this.#owned.use(await loadModel(source, loadOptionsOf(this.#options)));
    refuseHead(source, model.head);
    return this.addLoaded(name, model, tokenizer);
  }

  /** Offers a model that is already loaded; the caller still owns it and frees it. */
  addLoaded(name: string, model: Model, tokenizer: Tokenizer): ServedModel {
    this.#checkFree(name);
    model.train(false);
    const { spec, device } = model.decoder;
    const usual = device === 'cpu' ? 4096 : 8192;
    // A model is untrained beyond its positions, and some fail.
    const maxLength = Math.min(this.#options.maxTokens ?? usual, spec.maxPositions);
    const sampler = this.#owned.use(
      new Sampler(model, {
        tokenizer,
        maxLength,
        reusePrefixes: true,
        ...(this.#options.precision === undefined ? {} : { precision: this.#options.precision }),
        ...(this.#options.cacheDtype === undefined ? {} : { cacheDtype: this.#options.cacheDtype }),
        ...(this.#options.slots === undefined ? {} : { slots: this.#options.slots }),
        ...(this.#options.maxCacheBytes === undefined ? {} : { maxCacheBytes: this.#options.maxCacheBytes }),
        ...(this.#options.maxQueue === undefined ? {} : { maxWaiting: this.#options.maxQueue }),
      }),
    );
    const { length: maxTokens } = sampler.plan([]); // less than maxLength if the cache is smaller
    return this.#offer({ name, model, tokenizer, sampler, adapter: model.adapters?.active?.name ?? null, maxTokens });
  }

  /** Adds an adapter to a model that is already offered; both share its weights. */
  addAdapter(name: string, folder: string, on?: string): ServedModel {
    this.#checkFree(name);
    const base = on === undefined ? this.models[0] : this.#served.get(on);
    if (base === undefined) throw new UserError(`There is no model "${on ?? ''}" to put the adapter "${name}" on.`);
    const adapter = name.replace(/[^\w-]/g, '_');
    refuseHead(folder, loadAdapter(base.model, folder, { name: adapter }).head);
    return this.#offer({ ...base, name, adapter });
  }

  async addRewardModel(name: string, source: string): Promise<void> {
    const scorer = await loadRewardModel(source, {
      ...loadOptionsOf(this.#options),
      ...(this.#options.precision === undefined ? {} : { precision: this.#options.precision }),
    });
    this.#owned.defer(() => scorer.dispose?.());
    this.#rewards.set(name, scorer);
  }

  /** The model of this name, or the only one if the client names none. */
  find(name: string | undefined): ServedModel {
    const found = name === undefined ? this.models[0] : this.#served.get(name);
    if (found !== undefined) return found;
    if (name !== undefined && this.#rewards.has(name))
      throw new ApiError(400, `"${name}" is a reward model: it scores responses, under /v1/score.`, { param: 'model' });
    throw missing('model', name, [...this.#served.keys()]);
  }

  findReward(name: string | undefined): RewardModelScorer {
    const found = name === undefined ? [...this.#rewards.values()][0] : this.#rewards.get(name);
    if (found !== undefined) return found;
    throw missing('reward model', name, this.rewardModels);
  }

  dispose(): void {
    this.#owned.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }

  #offer(served: ServedModel): ServedModel {
    this.#served.set(served.name, served);
    return served;
  }

  #checkFree(name: string): void {
    if (this.#served.has(name)) throw new UserError(`Two models are named "${name}": name one of them, NAME=MODEL.`);
  }
}

/** A value head was left by a critic; any other head makes it a scoring model. */
function refuseHead(source: string, head: ScoreHead | null): void {
  if (head !== null && head.kind !== 'value')
    throw new UserError(`${source} is a reward model: offer it with --reward-model, under /v1/score.`);
}

export function missing(what: string, name: string | undefined, known: readonly string[]): ApiError {
  const there = known.length === 0 ? `There is no ${what} here.` : `There are: ${known.join(', ')}.`;
  const message = name === undefined ? there : `The ${what} "${name}" is not served here. ${there}`;
  return new ApiError(404, message, { param: 'model', code: 'model_not_found' });
}
