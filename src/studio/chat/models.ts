/** The models of the chat: one or two, and a reward model, loaded into this process by name. */
import { basename, dirname } from 'node:path';
import { deviceOf, dtypeOf } from '../../models/index.ts';
import type { RewardScorer } from '../../rewards/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import { Registry, type ServedModel } from '../../serve/index.ts';
import type { ChatSlot, ChatState } from '../api/chat.ts';
import type { Job } from '../api/models.ts';
import type { JobHandle, Jobs } from '../commands/jobs.ts';
import type { ModelPlaces } from '../commands/places.ts';

export interface Slot {
  /** As it was asked for: what votes name it by. */
  model: string;
  served: ServedModel;
}

export class ChatModels implements Disposable {
  readonly #jobs: Jobs;
  readonly #places: ModelPlaces;
  readonly #device: string;
  #registry: Registry | undefined;
  #slots: Slot[] = [];
  #reward: { model: string; scorer: RewardScorer } | undefined;
  #loading: JobHandle | undefined;

  constructor(jobs: Jobs, places: ModelPlaces, device: string) {
    this.#jobs = jobs;
    this.#places = places;
    this.#device = device;
  }

  get slots(): readonly Slot[] {
    return this.#slots;
  }
  get scorer(): RewardScorer | undefined {
    return this.#reward?.scorer;
  }

  state(votesFile: string): ChatState {
    return {
      slots: this.#slots.map(slotOf),
      votesFile,
      ...(this.#reward === undefined ? {} : { rewardModel: this.#reward.model }),
      ...(this.#loading === undefined ? {} : { loading: { jobId: this.#loading.job.id } }),
    };
  }

  /** Takes the place of what was loaded; the job ends when the models can be talked to. */
  load(models: readonly string[], rewardModel: string | undefined): Job {
    if (this.#loading !== undefined)
      throw new ApiError(409, 'Models are being loaded already: wait for them.', { code: 'conflict' });
    if (models.length === 2 && models[0] === models[1])
      throw new ApiError(400, 'Both models are the same: there would be nothing to vote on.', { code: 'invalid' });
    const sources = models.map((model) => this.#places.find(model));
    const reward = rewardModel === undefined ? undefined : this.#places.find(rewardModel);
    const handle = this.#jobs.begin({
      kind: 'load',
      title: [...models, rewardModel].filter((name) => name !== undefined).join(', ') || 'unload',
    });
    this.#loading = handle;
    void this.#loadAll(handle, models, sources, rewardModel, reward)
      .then(
        () => handle.end('done'),
        (error) => {
          this.#unload();
          handle.end('failed', { error: (error as Error).message });
        },
      )
      .finally(() => {
        this.#loading = undefined;
      });
    return handle.job;
  }

  [Symbol.dispose](): void {
    this.#unload();
  }

  async #loadAll(
    handle: JobHandle,
    models: readonly string[],
    sources: readonly string[],
    rewardModel: string | undefined,
    reward: string | undefined,
  ): Promise<void> {
    this.#unload();
    const device = deviceOf(this.#device);
    const progress = {
      start: (label: string, total?: number, _unit?: string, before = 0) => {
        let done = before;
        handle.progress(label, done, total);
        return {
          advance: (amount = 1) => {
            done += amount;
            handle.progress(label, done, total);
          },
          done: () => {},
        };
      },
    };
    const registry = new Registry({ device, dtype: dtypeOf('auto', device), slots: 4, progress });
    this.#registry = registry;
    const slots: Slot[] = [];
    for (const [i, model] of models.entries()) {
      handle.line(`loading ${model}`);
      slots.push({ model, served: await registry.add(model, sources[i] as string) });
    }
    if (rewardModel !== undefined && reward !== undefined) {
      handle.line(`loading ${rewardModel}`);
      await registry.addRewardModel(rewardModel, reward);
      this.#reward = { model: rewardModel, scorer: registry.findReward(rewardModel) };
    }
    this.#slots = slots;
  }

  #unload(): void {
    this.#slots = [];
    this.#reward = undefined;
    this.#registry?.dispose();
    this.#registry = undefined;
  }
}

function slotOf({ model, served }: Slot): ChatSlot {
  const { maxTokens, tokenizer } = served;
  return {
    model,
    name: shortName(model),
    maxTokens,
    thinking: tokenizer.chatTemplate?.includes('enable_thinking') ?? false,
  };
}

/** A run's checkpoint is known by its run. */
export function shortName(model: string): string {
  const name = basename(model);
  return /^(final|best_model|(step|checkpoint)-\d+)$/.test(name) ? `${basename(dirname(model))}/${name}` : name;
}
