/** `attune train sft|reward|preference|policy`: each verb is in its own file. */
import type { Command } from 'commander';
import { policyAlgorithms, preferenceLosses } from '../algorithms/index.ts';
import { hintAtVerbs } from './options/verbs.ts';
import { registerPipeline } from './train-pipeline.ts';
import { registerTrainPolicy } from './train-policy.ts';
import { registerTrainPreference } from './train-preference.ts';
import { registerTrainReward } from './train-reward.ts';
import { registerTrainSft } from './train-sft.ts';

/** `train grpo` and `train dpo` name a method, which is an option. */
function methodHint(word: string): string | undefined {
  const is = ({ name, aliases }: { name: string; aliases?: readonly string[] }) =>
    [name, ...(aliases ?? [])].includes(word);
  if (policyAlgorithms.some(is)) return `Type: attune train policy --algorithm ${word}.`;
  return preferenceLosses.some(is) ? `Type: attune train preference --loss ${word}.` : undefined;
}

export function register(program: Command): void {
  const train = program.command('train').description('train a model: sft, reward, preference or policy');
  // An option after a verb belongs to the verb, even if `train` has one of the same name.
  program.enablePositionalOptions();
  train.enablePositionalOptions();
  registerTrainSft(train);
  registerTrainReward(train);
  registerTrainPolicy(train);
  registerTrainPreference(train);
  registerPipeline(train);
  hintAtVerbs(train, methodHint);
}
