/** `attune train preference`: direct alignment on pairs or on single labelled responses. */
import type { Command } from 'commander';
import { describePlan } from '../trainers/batches/plan.ts';
import { checkHeldOut } from '../trainers/loop/best.ts';
import { configuredLoss, preferenceSchema } from '../trainers/preference/config.ts';
import { openPreferences, preferencePlan } from '../trainers/preference/data.ts';
import { preferenceJudged } from '../trainers/preference/objective.ts';
import { startPreference } from '../trainers/preference/preference.ts';
import type { Sample } from '../trainers/preference/samples.ts';
import { registerTrainVerb, type TrainVerb } from './options/training.ts';
import { print } from './terminal/print.ts';

export const preferenceVerb: TrainVerb<typeof preferenceSchema> = {
  name: 'preference',
  description: 'direct alignment: dpo and its kin on pairs, kto on single judged responses',
  schema: preferenceSchema,
  start: (resolved, options) => startPreference(resolved, { ...options, onSamples: printSamples }),
  judged: () => preferenceJudged,
  async plan({ config, sources, resume }, options, refuse) {
    const { algorithm } = configuredLoss(config);
    const data = await openPreferences(config, algorithm, options);
    try {
      checkHeldOut(config, data.validation !== undefined, sources);
      const { progress } = options;
      return describePlan(await preferencePlan(config, algorithm, data, { progress, refuse, resume }));
    } finally {
      await data.close();
    }
  },
  examples: [
    'attune train preference --model models/tiny --dataset pairs.jsonl --loss dpo --beta 0.1 --lr 1e-4',
    'attune train preference --model Qwen/Qwen3-0.6B --dataset trl-lib/ultrafeedback_binarized --loss ipo --lora',
    'attune train preference --model models/tiny --dataset judged.jsonl --loss kto --undesirable-weight 1.5',
    'attune train preference --model models/tiny --dataset pairs.jsonl --loss simpo --no-ref-model',
  ],
};

export function registerTrainPreference(train: Command): void {
  const command = registerTrainVerb(train, preferenceVerb);
  command.option('--no-ref-model', 'train without a reference, where the loss allows it');
}

/** Prints the policy's current responses, one line per prompt. */
export function printSamples(samples: readonly Sample[]): void {
  for (const { step, prompt, response, ended } of samples)
    print(`step ${step}  ${oneLine(prompt, 60)} → ${oneLine(response, 100)}${ended ? '' : ' …'}`);
}

function oneLine(text: string, length: number): string {
  const flat = text
    .replace(/<\|[^|]*\|>/g, ' ')
    .replace(/\s+/g, ' ')
    .trim();
  return flat.length <= length ? flat : `…${flat.slice(-length)}`;
}
