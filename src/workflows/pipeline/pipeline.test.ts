import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { preferenceRows } from '../../../tests/support/preference-rows.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { ConfigError, readMetrics } from '../../runs/index.ts';
import { openSafetensors, scope } from '../../tensor/index.ts';
import { preferenceInput, readPipeline } from './config.ts';
import { type PipelineOptions, trainPipeline } from './pipeline.ts';
import { planPipeline } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-pipeline-'));
const at = (...parts: string[]) => join(folder, ...parts);
const qwen = at('qwen');
const gpt2 = at('gpt2');

beforeAll(async () => {
  vi.stubEnv('ATTUNE_CACHE', at('cache'));
  await tinyModel(qwen);
  await tinyModel(gpt2, { config: { model_type: 'gpt2' } });
  writeFileSync(
    at('pairs.jsonl'),
    preferenceRows(48)
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(''),
  );
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

const recipe = (
  given: Record<string, Record<string, unknown>> = {},
  models = { qwen, gpt2 } as Record<string, string>,
) => ({
  models: Object.entries(models).map(([name, path]) => ({ name, huggingface_id: path })),
  dataset: { name: at('pairs.jsonl'), ...given.dataset },
  training: {
    output_dir: at('out'),
    num_epochs: 1,
    per_device_train_batch_size: 4,
    gradient_accumulation_steps: 2,
    learning_rate: 1e-3,
    warmup_steps: 1,
    eval_steps: 2,
    save_steps: 2,
    logging_steps: 1,
    ...given.training,
  },
  logging: { logging_dir: at('logs'), report_to: ['none'], ...given.logging },
  ...(given.post_training ? { post_training: given.post_training } : {}),
  ...(given.lora ? { lora: given.lora } : {}),
  ...(given.finetuning ? { finetuning: given.finetuning } : {}),
  ...(given.gpu ? { gpu: given.gpu } : {}),
});

const train = (given: Record<string, unknown>, options: PipelineOptions = {}) =>
  trainPipeline(readPipeline(given).config, { curves: false, ...options });

describe('a pipeline', () => {
  it('trains model after model into the promised folders; one that fails does not stop the rest', async () => {
    const output = { training: { output_dir: at('isolated') }, logging: { report_to: ['tensorboard'] } };
    const outcomes = await train(recipe(output, { missing: at('nowhere'), qwen, gpt2 }));
    expect(outcomes.map(({ name, status }) => [name, status])).toEqual([
      ['missing', 'failed'],
      ['qwen', 'finished'],
      ['gpt2', 'finished'],
    ]);
    expect(outcomes[0]?.error?.message).toContain('nowhere');
    for (const name of ['qwen', 'gpt2']) {
      for (const file of [
        'adapter_config.json',
        'adapter_model.safetensors',
        'tokenizer.json',
        'tokenizer_config.json',
      ])
        expect(existsSync(at('isolated', name, 'final', file)), file).toBe(true);
      expect(existsSync(at('isolated', name, 'checkpoint-2', 'trainer_state.json'))).toBe(true);
      expect(existsSync(at('logs', name))).toBe(true);
      expect(readMetrics(at('isolated', name, 'metrics.jsonl')).at(-1)).toHaveProperty('eval/accuracy');
    }
    const { target_modules: targets } = JSON.parse(
      readFileSync(at('isolated', 'gpt2', 'final', 'adapter_config.json'), 'utf8'),
    );
    expect(targets).toEqual(['c_attn']);
    expect(JSON.parse(readFileSync(at('isolated', 'pipeline_results.json'), 'utf8'))).toHaveLength(3);
  });

  it('a chosen model’s failure is final', async () => {
    const config = recipe({ training: { output_dir: at('chosen') } }, { missing: at('nowhere'), qwen });
    await expect(train(config, { modelIndex: 0 })).rejects.toThrow(/nowhere/);
    await expect(train(config, { modelIndex: 7 })).rejects.toThrow(/0 missing, 1 qwen/);
  });

  it('that is stopped while it reads a model’s data is stopped, and has not failed', async () => {
    const stop = new AbortController();
    const start = (label: string) => {
      if (label.startsWith('tokenising')) stop.abort('SIGINT');
      return { advance() {}, done() {} };
    };
    const stopped = recipe({ training: { output_dir: at('stopped-early') } });
    const outcomes = await train(stopped, { signal: stop.signal, progress: { start }, cache: false });
    expect(outcomes.map(({ name, status }) => [name, status])).toEqual([['qwen', 'interrupted']]);
    expect(JSON.parse(readFileSync(at('stopped-early/pipeline_results.json'), 'utf8'))).toMatchObject([
      { name: 'qwen', status: 'interrupted' },
    ]);
    const again = await train(stopped, { resume: true, modelIndex: 0 });
    expect(again.map(({ status }) => status)).toEqual(['finished']);
  });

  it('resumes where it stopped, to the same weights, and leaves finished models alone', async () => {
    const interrupted = recipe({ training: { output_dir: at('stopped') } });
    const whole = recipe({ training: { output_dir: at('whole') } });
    await train(whole);
    const stop = new AbortController();
    const first = await train(interrupted, {
      signal: stop.signal,
      onStep: ({ name }, { step }) => {
        if (name === 'gpt2' && step === 3) stop.abort();
      },
    });
    expect(first.map(({ status }) => status)).toEqual(['finished', 'interrupted']);
    await expect(planFaults(interrupted)).resolves.toEqual(
      [/holds a run already/, /holds a run already/].map((pattern) => [expect.stringMatching(pattern)]),
    );
    const second = await train(interrupted, { resume: true });
    expect(second.map(({ status }) => status)).toEqual(['skipped', 'finished']);
    expect(weights(at('stopped', 'gpt2', 'final'))).toEqual(weights(at('whole', 'gpt2', 'final')));
  });

  it('does what its fields say', async () => {
    const outcomes = await train(
      recipe(
        {
          training: {
            output_dir: at('fields'),
            learning_rate: 0.05,
            save_steps: 1,
            save_total_limit: 1,
            eval_steps: 1,
            bf16: true,
          },
          lora: { enabled: false },
          dataset: { max_samples: 40, validation_split: 0.3 },
          finetuning: {
            metric_for_best_model: 'eval_rejected_lp',
            greater_is_better: true,
            early_stopping_patience: 1,
          },
          post_training: { method: 'dpo', loss_type: 'hinge', beta: 0.3 },
        },
        { qwen },
      ),
    );
    expect(outcomes[0]).toMatchObject({ status: 'early-stopping', best: { metric: 'eval/rejected_lp' } });
    const saved = JSON.parse(readFileSync(at('fields', 'qwen', 'config.json'), 'utf8'));
    expect(saved).toMatchObject({
      loss: 'hinge',
      beta: 0.3,
      subset_size: 40,
      dtype: 'bfloat16',
      validation_split: 0.3,
    });
    const final = JSON.parse(readFileSync(at('fields', 'qwen', 'final', 'config.json'), 'utf8'));
    expect(final.dtype).toBe('bfloat16');
    expect(weights(at('fields', 'qwen', 'final'))).toEqual(weights(at('fields', 'qwen', 'best_model')));
  });
});

const weights = (place: string) => {
  const name = existsSync(join(place, 'adapter_model.safetensors')) ? 'adapter_model' : 'model';
  using file = openSafetensors(join(place, `${name}.safetensors`));
  return scope(() => Object.fromEntries(file.names.map((each) => [each, file.tensor(each).numbers()])));
};

const planFaults = async (given: Record<string, unknown>) =>
  (await planPipeline(readPipeline(given).config)).map(({ faults }) => faults);

describe('a look before training', () => {
  it('tells steps and memory of each model', async () => {
    const [first] = await planPipeline(readPipeline(recipe({ training: { output_dir: at('dry') } })).config);
    expect(first).toMatchObject({ faults: [], training: { steps: { total: 6 }, model: { family: 'qwen3' } } });
    // four projections of two layers: r·(inputs + outputs)
    expect(first?.training?.memory.trainable).toBe(2 * 8 * (32 + 32 + 32 + 16 + 32 + 16 + 32 + 32));
    expect(existsSync(at('dry'))).toBe(false);
  });

  it('takes all linear modules in one word', async () => {
    const given = recipe({ training: { output_dir: at('dry') }, lora: { target_modules: 'all-linear' } }, { qwen });
    const [plan] = await planPipeline(readPipeline(given).config);
    // attention as above, and gate, up and down of 32 and 64
    expect(plan?.training?.memory.trainable).toBe(2 * 8 * (224 + 3 * (32 + 64)));
  });

  it('has the faults of the model and of the data', async () => {
    const given = {
      models: [{ name: 'a', huggingface_id: join(folder, 'nope') }],
      dataset: { name: join(folder, 'no.jsonl') },
    };
    expect(await planFaults({ ...given, training: { output_dir: join(folder, 'both') } })).toEqual([
      [expect.stringContaining('nope" does not exist'), expect.stringContaining('no.jsonl: no such file')],
    ]);
  });

  it('has the faults of all models at once', async () => {
    const given = recipe(
      { training: { output_dir: at('dry') }, lora: { target_modules: ['q_proj'] } },
      { missing: at('nowhere'), qwen, gpt2 },
    );
    expect(await planFaults(given)).toEqual([
      [expect.stringContaining('nowhere')],
      [],
      [expect.stringMatching(/no linear module.*q_proj.*c_attn/s)],
    ]);
  });

  it('finds a wrong column and a wrong module together', async () => {
    const given = recipe(
      { training: { output_dir: at('dry') }, dataset: { prompt_column: 'promt' }, lora: { target_modules: ['nope'] } },
      { qwen },
    );
    const [faults] = await planFaults(given);
    expect(faults).toEqual([expect.stringMatching(/promt.*prompt/s), expect.stringContaining('nope')]);
  });
});

describe('faults of the file', () => {
  const faultsOf = (given: Record<string, unknown>): string[] => {
    try {
      readPipeline(given);
    } catch (error) {
      if (error instanceof ConfigError) return error.faults.map(({ path, message }) => `${path}: ${message}`);
    }
    return [];
  };

  it('are told all at once', () => {
    const faults = faultsOf({
      models: [{ name: 'a', huggingface_id: 'x', trust_remote_code: 'maybe' }, { name: 'b' }],
      dataset: { name: 'd', validation_spilt: 0.1 },
      post_training: { method: 'dppo' },
      training: { fp16: true, optim: 'adafactor', learning_rate: 'fast' },
      gpu: { device_ids: [0, 1], use_ddp: false },
      finetuning: { metric_for_best_model: 'eval_acuracy' },
      lora: { task_type: 'SEQ_CLS' },
    });
    const expected = [
      /dataset\.validation_spilt: .*validation_split/,
      /models\[0\]\.trust_remote_code: expected true or false/,
      /models\[1\]\.huggingface_id: is required/,
      /post_training\.method: .*dpo/,
      /training\.fp16: .*bf16/,
      /training\.optim: expected "adamw_torch", got "adafactor"/,
      /training\.learning_rate: expected a number/,
      /gpu\.device_ids: several devices train together with use_ddp: true/,
      /finetuning\.metric_for_best_model: .*accuracy/,
      /lora\.task_type: .*CAUSAL_LM/,
    ];
    for (const pattern of expected)
      expect(
        faults.some((fault) => pattern.test(fault)),
        `${pattern}\n${faults.join('\n')}`,
      ).toBe(true);
    expect(faults).toHaveLength(expected.length);
  });

  it('name the field that the file has', () => {
    const faults = (training: Record<string, unknown>) => faultsOf(recipe({ training }));
    expect(faults({ max_seq_length: 128 })).toEqual([
      'training.max_seq_length: must be more than max_prompt_length, 256 unless given.',
    ]);
    expect(faults({ max_prompt_length: 600 })).toEqual([
      'training.max_prompt_length: leaves no room for a response within max_seq_length, 512.',
    ]);
  });

  it('include what no single field shows', () => {
    const base = recipe({}, { a: 'x' });
    expect(faultsOf({ ...base, models: [...base.models, ...base.models] })[0]).toMatch(/also models\[0\]/);
    expect(faultsOf({ ...base, post_training: { method: 'orpo', loss_type: 'hinge' } })[0]).toMatch(/contradicts/);
    for (const given of [{ ref_model_id: 'y' }, { ref_quant_type: 'int8' }])
      expect(faultsOf({ ...base, post_training: { use_ref_model: false, ...given } })[0]).toMatch(/use_ref_model/);
  });
});

describe('the earlier pipeline’s files', () => {
  const input = (given: Record<string, unknown>) => {
    const { config } = readPipeline(given);
    return preferenceInput(config, config.models[0] as (typeof config.models)[number], 'cpu');
  };

  it('may write null for what is not set', () => {
    const given = {
      models: [{ name: 'gpt2', huggingface_id: gpt2, trust_remote_code: false }],
      dataset: {
        ...{ name: at('pairs.jsonl'), split: null, subset: null, prompt_column: 'prompt', chosen_column: 'chosen' },
        ...{ rejected_column: 'rejected', max_samples: null, validation_split: 0.1 },
      },
      post_training: {
        ...{ method: 'dpo', beta: 0.1, label_smoothing: 0, loss_type: 'sigmoid' },
        ...{ use_ref_model: true, ref_model_id: null },
      },
      lora: {
        ...{ r: 8, lora_alpha: 16, lora_dropout: 0.05, bias: 'none', target_modules: null, task_type: 'CAUSAL_LM' },
        ...{ use_rslora: false, use_dora: false },
      },
      training: { output_dir: at('old'), num_epochs: 3, optim: 'adamw_torch', fp16: false, bf16: true },
      gpu: { device_ids: [0], use_ddp: false },
      finetuning: {
        ...{ resume_from_checkpoint: null, load_best_model_at_end: true, metric_for_best_model: 'eval_loss' },
        ...{ greater_is_better: false, early_stopping_patience: 3 },
      },
      logging: { report_to: ['tensorboard'], logging_dir: './logs', log_level: 'INFO' },
      wandb: { project_name: null },
      seed: 42,
    };
    expect(input(given)).toMatchObject({ loss: 'dpo', refModel: undefined, subsetSize: undefined, seed: 42 });
    // A section in which every line is commented out.
    expect(input({ ...given, lora: null })).toMatchObject({ lora: true, loraR: 8 });
    expect(() => readPipeline({ ...given, dataset: { ...given.dataset, nmae: null } })).toThrow(/nmae/);
  });

  it('may name the loss twice, as it did', () => {
    const loss = (post_training: Record<string, unknown>) => input(recipe({ post_training }, { qwen })).loss;
    expect(loss({ method: 'kto', loss_type: 'kto_pair' })).toBe('kto-pair');
    for (const method of ['ipo', 'orpo', 'kto']) expect(loss({ method, loss_type: 'sigmoid' })).toBe(method);
    expect(loss({ method: 'dpo', loss_type: 'ipo' })).toBe('ipo');
    expect(loss({ method: 'simpo' })).toBe('simpo');
  });

  it('may ask for no separate reference, which adapters never need', async () => {
    const given = (lora: Record<string, unknown>) =>
      recipe({ training: { output_dir: at('dry') }, post_training: { use_ref_model: false }, lora }, { qwen });
    expect(input(given({})).refModel).toBeUndefined();
    expect(await planFaults(given({}))).toEqual([[]]);
    expect((await planFaults(given({ enabled: false })))[0]?.[0]).toMatch(/cannot go without one/);
  });
});

it('goes on with a finished model when more epochs are asked for, and remembers what came before', async () => {
  const rows = () => JSON.parse(readFileSync(at('more', 'pipeline_results.json'), 'utf8'));
  const given = (num_epochs: number) => recipe({ training: { output_dir: at('more'), num_epochs } }, { qwen });
  const [first] = await train(given(1));
  expect(first).toMatchObject({ status: 'finished', step: 6 });
  const [same] = await train(given(1), { resume: true });
  expect(same?.status).toBe('skipped');
  expect(rows()).toMatchObject([{ name: 'qwen', status: 'finished', step: 6, best: { metric: 'eval/loss' } }]);
  const fresh = recipe({ training: { output_dir: at('dry'), num_epochs: 2 } }, { qwen });
  const [plan] = await planPipeline(readPipeline(fresh).config);
  const [more] = await train(given(2), { resume: true });
  // The last step of the first epoch was smaller, so the same examples may make one step more than in a single run.
  const step = more?.step as number;
  expect(more?.status).toBe('finished');
  expect(step - (plan?.training?.steps.total as number)).toBeOneOf([0, 1]);
  expect(readMetrics(at('more', 'qwen', 'metrics.jsonl')).at(-1)?.['train/epoch']).toBe(2);
  expect(rows()).toMatchObject([{ name: 'qwen', step, previous: { step: 6, status: 'finished' } }]);
  expect(readMetrics(at('more', 'qwen', 'metrics.jsonl')).map((row) => row.step)).toEqual(
    Array.from({ length: step }, (_, i) => i + 1),
  );
  const broken = recipe({ training: { output_dir: at('more') } }, { missing: at('nowhere'), gpt2 });
  await train(broken);
  expect(rows().map(({ name, status }: Record<string, string>) => [name, status])).toEqual([
    ['qwen', 'finished'],
    ['missing', 'failed'],
    ['gpt2', 'finished'],
  ]);
});

it('a resume that finds a model finished says so in the results, whatever failed since', async () => {
  const path = at('healed', 'pipeline_results.json');
  const rows = () => JSON.parse(readFileSync(path, 'utf8'));
  const given = recipe({ training: { output_dir: at('healed'), max_steps: 1 } }, { qwen });
  await train(given);
  const [finished] = rows();
  // Without --resume a folder that holds a run is refused, no model is started, and its result stays.
  await expect(train(given)).rejects.toThrow(/holds a run already/);
  expect(rows()).toEqual([finished]);
  const another = recipe({ training: { output_dir: at('healed'), max_steps: 1 } }, { qwen, missing: at('nowhere') });
  const tried = await train(another);
  expect(tried.map(({ status }) => status)).toEqual(['failed', 'failed']);
  expect(rows()).toMatchObject([finished, { name: 'missing', status: 'failed' }]);
  rmSync(path);
  await train(given, { resume: true });
  expect(rows()).toMatchObject([{ name: 'qwen' }]);
  // After it failed here, another command finished it.
  writeFileSync(path, JSON.stringify([{ name: 'qwen', status: 'failed', folder: at('healed', 'qwen'), seconds: 1 }]));
  await train(given, { resume: true });
  expect(rows()).toMatchObject([{ status: 'finished', step: 1, checkpoint: at('healed', 'qwen', 'final') }]);
});

it('the recipes are valid', () => {
  for (const name of ['minimal', 'full', 'several-models']) {
    const path = new URL(`../../../recipes/${name}.yaml`, import.meta.url).pathname;
    expect(readFileSync(path, 'utf8').split('\n')[0]).toBe(`# npm run attune -- train --config recipes/${name}.yaml`);
    expect(() => readPipeline(path)).not.toThrow();
  }
});
