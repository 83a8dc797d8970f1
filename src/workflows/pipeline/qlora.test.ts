/** QLoRA from a pipeline's YAML: the base in 4 or 8 bits, adapters trained, saved, loaded and resumed. */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { preferenceRows } from '../../../tests/support/preference-rows.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { loadModel, type QuantType } from '../../models/index.ts';
import { readMetrics } from '../../runs/index.ts';
import { openSafetensors } from '../../tensor/index.ts';
import { readPipeline } from './config.ts';
import { type PipelineOptions, trainPipeline } from './pipeline.ts';
import { planPipeline } from './plan.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-pipeline-qlora-'));
const at = (...parts: string[]) => join(folder, ...parts);

beforeAll(async () => {
  vi.stubEnv('ATTUNE_CACHE', at('cache'));
  await tinyModel(at('qwen'));
  await tinyModel(at('gpt2'), { config: { model_type: 'gpt2' } });
  // 16 pairs, of which 2 are held out: two steps of 8
  writeFileSync(
    at('pairs.jsonl'),
    preferenceRows(16)
      .map((row) => `${JSON.stringify(row)}\n`)
      .join(''),
  );
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

/** Writes a YAML file as a user would, and returns its path. */
function yaml(output: string, quantType: string, lora = ''): string {
  const path = at(`${output}.yaml`);
  writeFileSync(
    path,
    `
models:
  - {name: qwen, huggingface_id: ${at('qwen')}}
  - {name: gpt2, huggingface_id: ${at('gpt2')}}
dataset: {name: ${at('pairs.jsonl')}, validation_split: 0.1}
post_training: {method: dpo}
lora: {quant_type: ${quantType}, r: 4, lora_dropout: 0${lora}}
training: {output_dir: ${at(output)}, num_epochs: 1, per_device_train_batch_size: 4, gradient_accumulation_steps: 2,
  learning_rate: 1e-2, warmup_steps: 0, eval_steps: 2, save_steps: 1, logging_steps: 1}
logging: {logging_dir: ${at('logs')}, report_to: [none]}
gpu: {device_ids: []}
`,
  );
  return path;
}

const train = (path: string, options: PipelineOptions = {}) =>
  trainPipeline(readPipeline(path).config, { curves: false, ...options });

const adapter = (place: string) => readFileSync(join(place, 'adapter_model.safetensors'));

it.each(['int8', 'int4'] as const)('%s: checkpoints hold adapters only and name the quantised base', async (type) => {
  const path = yaml(type, type);
  // one model in 8 bits, both in 4, which the next test compares with these
  const names = type === 'int8' ? ['qwen'] : ['qwen', 'gpt2'];
  const outcomes = await train(path, type === 'int8' ? { modelIndex: 0 } : {});
  expect(outcomes).toMatchObject(names.map((name) => ({ name, status: 'finished', step: 2 })));
  for (const name of names) {
    for (const row of readMetrics(at(type, name, 'metrics.jsonl'))) expect(row['train/loss']).toBeGreaterThan(0);
    for (const place of ['checkpoint-1', 'final']) {
      const checkpoint = at(type, name, place);
      expect(existsSync(join(checkpoint, 'model.safetensors')), place).toBe(false);
      using file = openSafetensors(join(checkpoint, 'adapter_model.safetensors'));
      expect(file.names.length).toBeGreaterThan(0);
      for (const tensor of file.names) expect(tensor).toMatch(/lora_[AB]\.weight$/);
      const { base_model_name_or_path: base } = JSON.parse(
        readFileSync(join(checkpoint, 'adapter_config.json'), 'utf8'),
      );
      expect(base).toBe(at(name));
      using model = await loadModel(checkpoint, { dtype: 'float32', device: 'cpu' });
      expect(model.decoder.quantType).toBe<QuantType>(type);
    }
    expect(adapter(at(type, name, 'final')).equals(adapter(at(type, name, 'checkpoint-1')))).toBe(false);
  }
});

it('resumes to the weights of a run that was never stopped', async () => {
  const stop = new AbortController();
  const first = await train(yaml('stopped', 'int4'), {
    signal: stop.signal,
    onStep: ({ name }, { step }) => {
      if (name === 'gpt2' && step === 1) stop.abort();
    },
  });
  expect(first.map(({ status }) => status)).toEqual(['finished', 'interrupted']);
  const second = await train(at('stopped.yaml'), { resume: true });
  expect(second.map(({ status }) => status)).toEqual(['skipped', 'finished']);
  for (const name of ['qwen', 'gpt2'])
    expect(adapter(at('stopped', name, 'final')).equals(adapter(at('int4', name, 'final'))), name).toBe(true);
});

it('takes less memory in the plan, and is refused without adapters or for an unknown type', async () => {
  const bytes = async (type: string) => {
    const [plan] = await planPipeline(readPipeline(yaml(`plan-${type}`, type)).config);
    return plan?.training?.memory.weightBytes as number;
  };
  expect(await bytes('int4')).toBeLessThan(await bytes('int8'));
  const [plan] = await planPipeline(readPipeline(yaml('full', 'int4', ', enabled: false')).config);
  expect(plan?.faults).toEqual([expect.stringMatching(/train adapters on them/)]);
  expect(() => readPipeline(yaml('unknown', 'int3'))).toThrow(/lora\.quant_type.*int8.*int4/s);
});
