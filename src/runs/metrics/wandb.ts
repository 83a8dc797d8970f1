/**
 * Weights & Biases, through its own package if it is installed. With `WANDB_MODE` `disabled` or `offline` nothing is
 * sent: the JavaScript package keeps no offline runs, and `metrics.jsonl` has the same numbers.
 */
import { UserError } from '../../errors.ts';
import type { MetricSink } from './metrics.ts';

export interface WandbOptions {
  project: string;
  name: string;
  config: Record<string, unknown>;
  resumedAt?: number;
  environment?: NodeJS.ProcessEnv;
  /** Replaces the package in tests. */
  load?: () => Promise<unknown>;
}

interface WandbPackage {
  init(options: Record<string, unknown>): Promise<unknown>;
  log(values: Record<string, number>, step: number): unknown;
  finish(): Promise<unknown>;
}

const packageName = '@wandb/sdk';

/** A sink; undefined if `WANDB_MODE` forbids sending. */
export async function openWandb(options: WandbOptions): Promise<MetricSink | undefined> {
  const wandb = await checkWandb(options);
  if (wandb === undefined) return undefined;
  // `silent`: only attune's command line may print, not the package.
  const settings = { silent: true };
  await keepingSignals(() =>
    wandb.init({ project: options.project, name: options.name, config: options.config, settings }),
  );
  let pending: Promise<unknown> = Promise.resolve();
  return {
    scalars(step, values) {
      const finite = Object.fromEntries(Object.entries(values).filter(([, value]) => Number.isFinite(value)));
      // A lost connection must not end a training run. The numbers are in metrics.jsonl too.
      pending = pending.then(() => wandb.log(finite, step)).catch(() => {});
    },
    flush: async () => void (await pending),
    close: async () => {
      await pending;
      await wandb.finish();
    },
  };
}

/** W&B's package; undefined if `WANDB_MODE` forbids sending. Throws if it is not installed or there is no key. */
export async function checkWandb({
  environment = process.env,
  load = () => import(packageName),
}: Pick<WandbOptions, 'environment' | 'load'> = {}): Promise<WandbPackage | undefined> {
  const mode = environment.WANDB_MODE ?? 'online';
  if (['disabled', 'offline', 'dryrun'].includes(mode)) return undefined;
  const wandb = await loadPackage(load);
  if (!environment.WANDB_API_KEY) {
    throw new UserError(
      'W&B was asked for, but WANDB_API_KEY is not set. Put it in .env or the environment, or set WANDB_MODE=disabled.',
    );
  }
  return wandb;
}

/** Removes the package's Ctrl-C listeners, which would end the process before a checkpoint is saved. */
async function keepingSignals(body: () => Promise<unknown>): Promise<void> {
  const names = ['SIGINT', 'SIGTERM'] as const;
  const before = new Map(names.map((name) => [name, new Set(process.listeners(name))]));
  await body();
  for (const name of names) {
    for (const listener of process.listeners(name))
      if (!before.get(name)?.has(listener)) process.removeListener(name, listener);
  }
}

async function loadPackage(load: () => Promise<unknown>): Promise<WandbPackage> {
  try {
    const loaded = (await load()) as { default?: WandbPackage } & WandbPackage;
    return typeof loaded.init === 'function' ? loaded : (loaded.default as WandbPackage);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ERR_MODULE_NOT_FOUND') throw error;
    throw new UserError(
      `W&B was asked for, but the package ${packageName} is not installed. Run "npm install ${packageName}", or leave wandb out of --report-to.`,
    );
  }
}
