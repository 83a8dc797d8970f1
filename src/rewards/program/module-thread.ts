/** The thread in which a user's reward module runs; see module.ts. */
import { workerData } from 'node:worker_threads';
import { exported, loadedModule, refuse, serve } from '../../threads/served-module.ts';
import type { RewardItem } from '../scorer.ts';
import { RewardError, type RewardFunction, scoreBatch } from './batch.ts';

const { name } = workerData as { name: string };
const loaded = await loadedModule();
const body = loaded && rewardOf(loaded);
if (body !== undefined)
  serve(
    ({ items }: { items: readonly RewardItem[] }, signal) => scoreBatch(body, items, { name, signal }),
    (error) => (error instanceof RewardError ? error.fault : 'sample'),
  );

function rewardOf(module: Record<string, unknown>): RewardFunction | undefined {
  const found = module.default ?? module.reward;
  if (typeof found === 'function') return found as RewardFunction;
  refuse(`exports no function: it needs "export default async (batch) => [...]" (it exports: ${exported(module)}).`);
  return undefined;
}
