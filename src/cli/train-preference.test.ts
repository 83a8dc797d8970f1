import { Command } from 'commander';
import { expect, it } from 'vitest';
import { resolveConfig } from '../runs/index.ts';
import { configuredLoss, preferenceSchema } from '../trainers/preference/config.ts';
import { normalizeArguments } from './options/arguments.ts';
import { schemaFlags } from './options/options.ts';
import { registerTrainPreference } from './train-preference.ts';

function configOf(line: string) {
  const train = new Command('train');
  registerTrainPreference(train);
  const command = train.commands[0] as Command;
  command.parseOptions(normalizeArguments(line.split(' ')));
  return resolveConfig(preferenceSchema, { flags: schemaFlags(command, preferenceSchema) }).config;
}

it('takes the habits of other programs', () => {
  expect(configOf('--loss-type kto_pair --beta 0.2')).toMatchObject({ loss: 'kto-pair', beta: 0.2 });
  expect(configOf('--loss_type sigmoid --label-smoothing 0.1')).toMatchObject({ loss: 'dpo', labelSmoothing: 0.1 });
  expect(configOf('--loss orpo --no-ref-model').refModel).toBe(false);
  expect(configOf('--ref_model org/name --grad_accum_steps 8')).toMatchObject({ refModel: 'org/name', gradAccum: 8 });
  expect(configOf('--loss ipo --length-normalize').lengthNormalize).toBe(true);
});

it('gives each loss its own defaults', () => {
  const beta = (line: string) => configuredLoss(configOf(line)).options.beta;
  expect(['dpo', 'simpo', 'dpo-norm', 'kto'].map((loss) => beta(`--loss ${loss}`))).toEqual([0.1, 2, 2, 0.1]);
});

it('says what is wrong with a name, and when two were given', () => {
  expect(() => configOf('--loss dop')).toThrow(/Did you mean "dpo"/);
  expect(() => configOf('--loss dpo --loss-type hinge')).toThrow(/given twice/);
});
