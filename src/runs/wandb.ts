/**
 * Weights & Biases, through its own package where the user has installed it. `WANDB_MODE` is respected: `disabled`
 * writes nothing; `offline` has no counterpart in the JavaScript package and is refused with the way out.
 */
import { UserError } from '../errors.ts';
import type { MetricSink } from './metrics.ts';

export interface WandbOptions {
  project: string;
  name: string;
  config: Record<string, unknown>;
  resumedAt?: number;
  environment?: NodeJS.ProcessEnv;
  /** Stands in for the package in tests. */
  load?: () => Promise<unknown>;
}

interface WandbPackage {
  init(options: Record<string, unknown>): Promise<unknown>;
  log(values: Record<string, number>): unknown;
  finish(): Promise<unknown>;
}

const packageName = '@wandb/sdk';

/** A sink, or undefined where `WANDB_MODE=disabled`. */
export async function openWandb(options: WandbOptions): Promise<MetricSink | undefined> {
  const environment = options.environment ?? process.env;
  const mode = environment.WANDB_MODE ?? 'online';
  if (mode === 'disabled' || mode === 'dryrun') return undefined;
  if (mode === 'offline') {
    throw new UserError(
      `WANDB_MODE=offline is not possible here: ${packageName} can only send. ` +
        'Set WANDB_MODE=disabled, or leave wandb out of report_to; metrics.jsonl and TensorBoard files hold the same numbers.',
    );
  }
  const wandb = await loadPackage(options.load ?? (() => import(packageName)));
  if (!environment.WANDB_API_KEY) {
    throw new UserError('W&B was asked for, but WANDB_API_KEY is not set. Put it in .env or the environment, or set WANDB_MODE=disabled.');
  }
  await wandb.init({ project: options.project, name: options.name, config: options.config });
  let pending: Promise<unknown> = Promise.resolve();
  return {
    scalars(step, values) {
      const finite = Object.fromEntries(Object.entries(values).filter(([, value]) => Number.isFinite(value)));
      // A lost connection must not end a training run: the numbers are in metrics.jsonl too.
      pending = pending.then(() => wandb.log({ ...finite, 'trainer/step': step })).catch(() => {});
    },
    flush: async () => void (await pending),
    close: async () => {
      await pending;
      await wandb.finish();
    },
  };
}

async function loadPackage(load: () => Promise<unknown>): Promise<WandbPackage> {
  try {
    const loaded = (await load()) as { default?: WandbPackage } & WandbPackage;
    return typeof loaded.init === 'function' ? loaded : (loaded.default as WandbPackage);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new UserError(`W&B was asked for, but the package ${packageName} is not installed. Run "npm install ${packageName}", or leave wandb out of report_to.`);
  }
}
