/** `attune train sft`: chats or plain text, from a checkpoint or from scratch. */
import type { Command } from 'commander';
import { loadTokenizer } from '../models/index.ts';
import { describePlan, trainingPlan } from '../trainers/batches/plan.ts';
import { checkHeldOut } from '../trainers/loop/best.ts';
import { sftBatching, sftJudged, sftSchema, sftTeacherPlan, sftTokens, startSft } from '../trainers/sft/sft.ts';
import { registerTrainVerb, type TrainVerb } from './options/training.ts';

export const sftVerb: TrainVerb<typeof sftSchema> = {
  name: 'sft',
  description: "supervised fine-tuning on chats or plain text, also on a teacher's distributions",
  schema: sftSchema,
  start: startSft,
  judged: sftJudged,
  async plan({ config, sources, resume }, options, refuse) {
    const tokenizer = await loadTokenizer(config, options.progress);
    const data = await sftTokens(config, tokenizer, options);
    try {
      checkHeldOut(config, data.validation !== undefined, sources);
      const plan = await trainingPlan(config, data, sftBatching(config), { ...options, refuse, resume });
      const { memory, positions } = await sftTeacherPlan(config, tokenizer, plan, options.progress);
      return describePlan({ ...plan, teacherPositions: positions }, memory);
    } finally {
      await data.close();
    }
  },
  examples: [
    'attune train sft --model Qwen/Qwen3-0.6B --dataset chats.jsonl --lora',
    'attune train sft --model Qwen/Qwen3-0.6B --teacher Qwen/Qwen3-4B --dataset chats.jsonl',
    'attune train sft --from-config config.json --tokenizer ./tokenizer --dataset chats.jsonl --lr 1e-3 --token-budget 16384',
  ],
};

export function registerTrainSft(train: Command): void {
  registerTrainVerb(train, sftVerb);
}
