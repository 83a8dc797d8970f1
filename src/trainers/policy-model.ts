/** A model trained to write text must have no reward head: a saved model with one counts as a reward model. */
import { join } from 'node:path';
import { UserError } from '../errors.ts';
import { resolveModel } from '../hub/hub.ts';
import { readAdapterConfig } from '../models/files/adapter.ts';
import { inspectModel } from '../models/index.ts';
import type { Progress } from '../progress.ts';
import { readJson } from '../runs/index.ts';

/** Refuses a reward model by its config and its files' headers. For plans, which load no weights. */
export async function refuseRewardModel(model: string, progress?: Progress): Promise<void> {
  const { head } = await inspectModel(model, { progress, configOnly: true });
  if (head !== null) throw await rewardModelAsPolicy(model);
}

/** The error for a reward model used as a policy. It suggests the base model if the files name one. */
export async function rewardModelAsPolicy(model: string, option = '--model'): Promise<UserError> {
  const start = startOf(await resolveModel(model, { configOnly: true }));
  const named = start === undefined ? '' : ` (${option} ${start})`;
  const further = option === '--model' ? ', or train it further with attune train reward' : '';
  return new UserError(
    `${option} ${model} is a reward model, not a policy: take the model that it was trained from${named}${further}.`,
  );
}

/** The model that a training started from: an adapter names its base, a checkpoint has its training's config. */
function startOf(folder: string): string | undefined {
  const adapter = readAdapterConfig(folder);
  if (adapter !== null) return adapter.base.folder ?? adapter.base.name;
  const config = readJson<{ model?: string; from_config?: string }>(join(folder, 'train_config.json'));
  return config?.from_config === undefined ? config?.model : undefined;
}
