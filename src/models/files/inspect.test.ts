import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import {
  addLora,
  initModel,
  inspectModel,
  loadAdapter,
  loadModel,
  loadModelFolder,
  loadTokenizer,
  saveModel,
  trainingMemory,
} from '../index.ts';

const temporary = mkdtempSync(join(tmpdir(), 'attune-inspect-'));
afterAll(() => rmSync(temporary, { recursive: true }));

/** Qwen/Qwen3-0.6B's config.json. */
const qwen = {
  architectures: ['Qwen3ForCausalLM'],
  model_type: 'qwen3',
  vocab_size: 151936,
  hidden_size: 1024,
  intermediate_size: 3072,
  num_hidden_layers: 28,
  num_attention_heads: 16,
  num_key_value_heads: 8,
  head_dim: 128,
  max_position_embeddings: 40960,
  rope_theta: 1000000,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  torch_dtype: 'bfloat16',
};
const tiny = {
  ...qwen,
  vocab_size: 64,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  head_dim: 4,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  torch_dtype: 'float32',
};

describe('inspectModel', () => {
  it('knows Qwen3-0.6B from its config alone', async () => {
    writeFileSync(join(temporary, 'config.json'), JSON.stringify(qwen));
    const found = await inspectModel(temporary, { device: 'cpu' });
    // 1024·151936; per layer 1024·(2048 + 2·1024) + 2048·1024, 3·1024·3072, 2·1024 + 2·128; the last norm
    expect(found.parameters).toEqual({
      total: 596_049_920,
      embedding: 155_582_464,
      attention: 28 * 6_291_456,
      mlp: 28 * 9_437_184,
      norms: 28 * 2304 + 1024,
      head: 0,
      adapters: 0,
    });
    expect(found).toMatchObject({
      family: 'qwen3',
      dtype: 'bfloat16',
      contextTokens: 40960,
      attention: 'grouped-query, 16 heads of 128 over 8, full',
      positions: 'rope (theta 1000000)',
      tokenizer: null,
    });
    const { memory } = found;
    expect(memory.loadBytes).toBe(2 * 596_049_920);
    // bf16 gradient, two f32 moments, an f32 master
    expect(memory.train.optimizerBytes).toBe(14 * 596_049_920);
    // r 16: q 1024+2048, k and v 1024+1024, o 2048+1024
    expect(memory.lora.trainable).toBe(28 * 16 * (3072 + 2048 + 2048 + 3072));
    expect(memory.lora.optimizerBytes).toBe(12 * memory.lora.trainable);
    const shorter = await inspectModel(temporary, { checkpointing: true, device: 'cpu' });
    expect(shorter.memory.lora.activationBytes).toBeLessThan(memory.lora.activationBytes / 6);
    await expect(inspectModel(temporary, { lora: { targetModules: ['c_attn'] } })).rejects.toThrow(/There are: q_proj/);
    await expect(inspectModel(temporary, { checkpoint: true } as never)).rejects.toThrow(
      'Did you mean "checkpointing"?',
    );
  });

  it('calls a folder without an adapter so', async () => {
    using model = initModel(tiny, { seed: 1 });
    expect(() => loadAdapter(model, temporary)).toThrow(
      `${temporary} holds no adapter: there is no adapter_config.json.`,
    );
  });

  it("says which file names an adapter's base that is not there", async () => {
    const adapter = join(temporary, 'lost');
    mkdirSync(adapter);
    const config = { peft_type: 'LORA', base_model_name_or_path: '../nope', target_modules: ['q_proj'] };
    writeFileSync(join(adapter, 'adapter_config.json'), JSON.stringify(config));
    const openers = [inspectModel, loadModel, loadTokenizer];
    for (const open of openers) {
      await expect(open(adapter)).rejects.toMatchObject({
        name: 'UserError',
        message: `${adapter}/adapter_config.json: its base_model_name_or_path "../nope" cannot be opened. The folder "../nope" does not exist. Write there where it lies now.`,
      });
    }
    // A repository whose owner has the name of a folder here: on the command line, `@main` could not be appended to it.
    writeFileSync(
      join(adapter, 'adapter_config.json'),
      JSON.stringify({ ...config, base_model_name_or_path: 'src/x' }),
    );
    for (const open of openers)
      await expect(open(adapter)).rejects.toThrow(
        /src\/ is a folder here\. Write there where it lies now, or "revision": "main" for the hub's repository of that name\.$/,
      );
  });

  it('counts what is in the files, heads and adapters included', async () => {
    const folder = join(temporary, 'reward');
    using made = initModel(tiny, { seed: 1 });
    made.addHead('reward', 1);
    saveModel(made, folder);
    const found = await inspectModel(folder);
    expect(found.head).toBe('reward');
    expect(found.parameters.head).toBe(16);
    expect(found.storedBytes).toEqual({ float32: 4 * found.parameters.total });

    using model = loadModelFolder(folder);
    const { parameters } = found;
    addLora(model, { r: 2, useDora: true });
    const adapter = join(temporary, 'adapter');
    saveModel(model, adapter);
    const adapted = await inspectModel(adapter);
    const own = [...(model.adapters?.active?.parameters() ?? [])].reduce((sum, [, { numel }]) => sum + numel, 0);
    expect(adapted.parameters).toEqual({
      ...parameters,
      head: 32, // the base's and the adapter's own
      adapters: own,
      total: parameters.total + 16 + own,
    });
    expect(adapted.adapter).toMatchObject({ base: folder, r: 2, dora: true });
    using shapes = initModel(tiny, { device: 'meta' });
    expect(trainingMemory(shapes, { dtype: 'float32', tokens: 1, lora: { r: 2, useDora: true } }).trainable).toBe(own);
  });
});
