import { Command } from 'commander';
import { describe, expect, it } from 'vitest';
import { type ConfigSchema, resolveConfig } from '../../runs/index.ts';
import { policySchema } from '../../trainers/policy/config.ts';
import { preferenceSchema } from '../../trainers/preference/config.ts';
import { rewardSchema } from '../../trainers/reward/config.ts';
import { compareSchema } from '../../workflows/compare/config.ts';
import { addSchemaOptions, schemaFlags } from './options.ts';

/** What a command line says to a schema. */
const typed = <S extends ConfigSchema>(schema: S, line: string) => {
  const command = addSchemaOptions(new Command().exitOverride(), schema);
  command.parse(line.split(' '), { from: 'user' });
  return resolveConfig(schema, { flags: schemaFlags(command, schema) }).config;
};

describe('names that other programs have for our options', () => {
  it('are understood on the command line', () => {
    expect(typed(policySchema, '--method ppo --model-name gpt2')).toMatchObject({ algorithm: 'ppo', model: 'gpt2' });
    expect(typed(preferenceSchema, '--method ipo --dpo-beta 0.3 --samples 50')).toMatchObject({
      ...{ loss: 'ipo', beta: 0.3, subsetSize: 50 },
    });
    expect(typed(rewardSchema, '--samples 7 --model-name gpt2')).toMatchObject({ subsetSize: 7, model: 'gpt2' });
    expect(typed(compareSchema, '--method ppo,dpo --dpo-beta 0.3')).toMatchObject({
      ...{ methods: ['ppo', 'dpo'], beta: 0.3 },
    });
  });

  it('are understood in a config file for a preference loss', () => {
    const file = {
      ...{ model_name: 'org/m', loss: 'simpo', beta: 2, gamma: 0.5, dataset_name: 'org/pairs', dataset_split: 'train' },
      ...{ max_samples: 640, max_length: 512, learning_rate: 8e-7, num_epochs: 3, batch_size: 8 },
      ...{ gradient_accumulation_steps: 8, warmup_ratio: 0.1, max_grad_norm: 1, gradient_checkpointing: true },
      ...{ bf16: true, wandb_project: null, log_every: 10, sample_every: 50, sample_num_prompts: 4 },
      ...{ sample_prompt_strategy: 'round_robin', output_dir: './outputs', save_model: false, seed: 42 },
    };
    const { config } = resolveConfig(preferenceSchema, { file });
    expect(config).toMatchObject({
      ...{ model: 'org/m', loss: 'simpo', gammaBetaRatio: 0.5, dataset: 'org/pairs', split: 'train', subsetSize: 640 },
      ...{ dtype: 'bfloat16', logSteps: 10, sampleSteps: 50, sampleCount: 4 },
      ...{ sampleOrder: 'round-robin', gradAccum: 8, epochs: 3, saveModel: false },
    });
    expect(config).not.toHaveProperty('wandbProject');
    expect(() => resolveConfig(preferenceSchema, { file: { ...file, bf16: 'often' } })).toThrow(/dtype: expected/);
  });

  it('are understood in a config file for a policy algorithm, or answered with what to write', () => {
    const file = {
      ...{ loss: 'ppo', model_name: 'org/m', clip_eps_lo: 0.2, clip_eps_hi: 0.3, clip_eps_val: 0.1, vf_coef: 0.1 },
      ...{ beta: 0, kl_estimator: 'kl3', num_rollouts: 4, max_norm: 1, wandb_run_name: 'ppo_1', top_k: 20 },
    };
    expect(resolveConfig(policySchema, { file }).config).toMatchObject({
      ...{ algorithm: 'ppo', model: 'org/m', clipLow: 0.2, clipHigh: 0.3, valueClip: 0.1, valueCoef: 0.1 },
      ...{ klCoef: 0, klEstimator: 'k3', groupSize: 4, maxGradNorm: 1, runName: 'ppo_1', topK: 20 },
    });
    const unlike = { data: { size: 3000 }, prompts_per_step: 4, rollout_batch_size: 8, model_device_id: 0 };
    const read = () => resolveConfig(policySchema, { file: { ...file, ...unlike } });
    for (const answer of ['task: "spell_backward:1"', 'batch_size × grad_accum', 'rollout_slots', 'device: "cuda:0"'])
      expect(read).toThrow(answer);
  });
});
