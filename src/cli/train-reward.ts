/** `attune train reward`: preference, outcome and process reward models. */
import type { Command } from 'commander';
import { loadTokenizer } from '../models/index.ts';
import { describePlan, trainingPlan } from '../trainers/batches/plan.ts';
import { checkHeldOut } from '../trainers/loop/best.ts';
import { rewardSchema } from '../trainers/reward/config.ts';
import { checkMargins, rewardMeasures, rewardTokens, startReward } from '../trainers/reward/reward.ts';
import { registerTrainVerb, type TrainVerb } from './options/training.ts';

export const rewardVerb: TrainVerb<typeof rewardSchema> = {
  name: 'reward',
  description: 'a reward model: on pairs, on graded solutions (ORM) or on labelled steps (PRM)',
  schema: rewardSchema,
  start: startReward,
  judged: ({ type }) => rewardMeasures(type),
  async plan({ config, sources, resume }, options, refuse) {
    const data = await rewardTokens(config, await loadTokenizer(config, options.progress), options);
    try {
      await checkMargins(config, data.train, refuse);
      checkHeldOut(config, data.validation !== undefined, sources);
      const { progress } = options;
      return describePlan(await trainingPlan(config, data, config, { progress, refuse, resume, mayHaveHead: true }));
    } finally {
      await data.close();
    }
  },
  examples: [
    'attune train reward --model models/tiny --dataset pairs.jsonl',
    'attune train reward --type outcome --model Qwen/Qwen3-0.6B --dataset graded.jsonl --lora',
  ],
};

export function registerTrainReward(train: Command): void {
  registerTrainVerb(train, rewardVerb);
}
