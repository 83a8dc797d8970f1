import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { attune } from '../../../tests/support/command-line.ts';
import { tinyModel } from '../../../tests/support/tiny-model.ts';
import { noGrad, openSafetensors, scope } from '../../tensor/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { addLora, loadModelFolder, type Model, packSequences, saveModel } from '../index.ts';
import { exportGguf } from './export-gguf.ts';
import { ollamaTemplate } from './gguf/modelfile.ts';
import { openGguf } from './gguf/reader.ts';
import { exportMerged } from './merged.ts';

const scratch = mkdtempSync(join(tmpdir(), 'attune-export-'));
const base = join(scratch, 'base');
const adapter = join(scratch, 'adapter');
beforeAll(async () => {
  await tinyModel(base, { hiddenSize: 64 });
  using model = loadModelFolder(base);
  const lora = addLora(model, { r: 4, targetModules: 'all-linear' });
  noGrad(() => {
    for (const [, tensor] of lora.parameters()) tensor.normal_(0, 0.1);
  });
  saveModel(model, adapter);
});
afterAll(() => rmSync(scratch, { recursive: true }));

const logits = (model: Model) =>
  noGrad(() =>
    scope(() => model.decoder.logits(model.decoder.forward(packSequences([[5, 9, 260, 7]]))).tolist() as number[][]),
  );

describe('export merged', () => {
  it('folds the adapter in, and takes the tokenizer along', async () => {
    const out = join(scratch, 'merged');
    await exportMerged({ model: base, adapter, out });
    using merged = loadModelFolder(out);
    using adapted = loadModelFolder(adapter);
    using plain = loadModelFolder(base);
    expect(merged.adapters).toBeNull();
    const distance = (a: Model, b: Model) => {
      const other = logits(b).flat();
      return Math.max(
        ...logits(a)
          .flat()
          .map((value, i) => Math.abs(value - (other[i] as number))),
      );
    };
    expect(distance(merged, adapted)).toBeLessThan(1e-4);
    expect(distance(merged, plain)).toBeGreaterThan(0.1);
    expect((await Tokenizer.load(out)).fingerprint).toBe((await Tokenizer.load(base)).fingerprint);
    expect(readdirSync(scratch).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  });

  it("takes an adapter's folder for its base with the adapter on it", async () => {
    const { code, out } = await attune('export', 'merged', '--model', adapter, '--out', join(scratch, 'from-adapter'));
    expect([code, out]).toEqual([0, expect.stringContaining('weights in float32, tokenizer')]);
    using one = openSafetensors(join(scratch, 'from-adapter/model.safetensors'));
    using other = openSafetensors(join(scratch, 'merged/model.safetensors'));
    expect(one.names).toEqual(other.names);
    const name = 'model.layers.1.mlp.down_proj.weight';
    expect(one.tensor(name).tolist()).toEqual(other.tensor(name).tolist());
  });

  it('makes a quantised model plain', async () => {
    using quantised = loadModelFolder(base, { quantType: 'int4' });
    saveModel(quantised, join(scratch, 'quantised'));
    await Tokenizer.load(base).then((tokenizer) => tokenizer.save(join(scratch, 'quantised')));
    await exportMerged({ model: join(scratch, 'quantised'), out: join(scratch, 'plain') });
    using plain = loadModelFolder(join(scratch, 'plain'));
    expect(plain.config.quantization_config).toBeUndefined();
    expect(plain.decoder.quantType).toBeNull();
    const expected = logits(quantised).flat();
    const off = logits(plain)
      .flat()
      .map((value, i) => Math.abs(value - (expected[i] as number)));
    expect(Math.max(...off)).toBeLessThan(1e-4);
  });

  it('writes over nothing', async () => {
    for (const out of [base, adapter]) await expect(exportMerged({ model: base, out })).rejects.toThrow(/not empty/);
    await expect(exportMerged({ model: base, adapter: base, out: join(scratch, 'no') })).rejects.toThrow(
      /not an adapter's folder/,
    );
    expect(existsSync(join(scratch, 'no'))).toBe(false);
  });
});

describe('export gguf', () => {
  it('holds every weight under its name', async () => {
    const out = join(scratch, 'plain.gguf');
    const { architecture, notes } = await exportGguf({ model: base, type: 'f32', out });
    expect([architecture, notes]).toEqual(['qwen3', []]);
    using file = openGguf(out);
    using stored = openSafetensors(join(base, 'model.safetensors'));
    const pairs = {
      'blk.1.attn_k': 'layers.1.self_attn.k_proj',
      'blk.0.ffn_up': 'layers.0.mlp.up_proj',
      token_embd: 'embed_tokens',
    };
    for (const [name, theirs] of Object.entries(pairs))
      expect([...file.values(`${name}.weight`)]).toEqual(
        (stored.tensor(`model.${theirs}.weight`).tolist() as number[][]).flat(),
      );
    expect(file.metadata.get('qwen3.attention.head_count_kv')).toBe(2);
    expect(file.tensors.size).toBe(stored.names.length);
  });

  it('reads back within the error of its type', async () => {
    const expected = join(scratch, 'expected.gguf');
    await exportGguf({ model: base, adapter, type: 'f32', out: expected });
    using plain = openGguf(expected);
    for (const [type, bound] of [
      ['f16', 6e-4],
      ['bf16', 5e-3],
      ['q8_0', 5e-3],
      ['q4_0', 0.14],
    ] as const) {
      const out = join(scratch, `${type}.gguf`);
      await exportGguf({ model: base, adapter, type, out });
      using file = openGguf(out);
      expect(file.tensors.get('blk.0.attn_v.weight')?.type).toBe(type);
      expect(file.tensors.get('token_embd.weight')?.type).toBe(type === 'q4_0' ? 'q8_0' : type);
      expect(file.tensors.get('blk.0.attn_norm.weight')?.type).toBe('f32');
      for (const name of file.tensors.keys()) {
        const values = plain.values(name);
        const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
        const off = file.values(name).map((value, i) => Math.abs(value - (values[i] as number)));
        expect(Math.max(...off), `${type} ${name}`).toBeLessThanOrEqual(bound * largest);
      }
    }
  });

  it('has a Modelfile with the template and the stops', async () => {
    const text = readFileSync(join(scratch, 'q4_0.Modelfile'), 'utf8');
    expect(text).toContain('FROM ./q4_0.gguf');
    expect(readFileSync(join(scratch, 'Modelfile'), 'utf8')).toContain('FROM ./plain.gguf');
    expect(text).toContain('PARAMETER stop "<|im_end|>"');
    const template = ollamaTemplate(await Tokenizer.load(base), false) as string;
    expect(text).toContain(template);
    expect(template).toBe(
      '{{ range .Messages }}{{ if eq .Role "system" }}<|im_start|>system\n{{ .Content }}<|im_end|>\n' +
        '{{ else if eq .Role "user" }}<|im_start|>user\n{{ .Content }}<|im_end|>\n' +
        '{{ else if eq .Role "assistant" }}<|im_start|>assistant\n{{ .Content }}<|im_end|>\n{{ end }}{{ end }}<|im_start|>assistant\n',
    );
  });

  it('says what llama.cpp cannot do', async () => {
    const { code, err } = await attune(
      'export',
      'gguf',
      '--model',
      'models/tiny',
      '--type',
      'f16',
      '--out',
      join(scratch, 'tiny.gguf'),
    );
    expect(code).toBe(0);
    expect(err).toMatch(/none of them splits text as this tokenizer does.*What to do: send the ids/s);
  });

  it('refuses what it cannot or must not write', async () => {
    const taken = join(scratch, 'taken.gguf');
    writeFileSync(taken, 'something else');
    await expect(exportGguf({ model: base, type: 'f16', out: taken })).rejects.toThrow(/not a GGUF file/);
    await expect(exportGguf({ model: base, type: 'f16', out: join(base, 'model.safetensors') })).rejects.toThrow(
      /ends in/,
    );
    const bare = join(scratch, 'bare');
    mkdirSync(bare);
    for (const name of ['config.json', 'model.safetensors'])
      writeFileSync(join(bare, name), readFileSync(join(base, name)));
    await expect(exportGguf({ model: bare, type: 'f16', out: join(scratch, 'b.gguf') })).rejects.toThrow(
      /no tokenizer.json/,
    );
    using model = loadModelFolder(base);
    model.addHead('reward', 1);
    saveModel(model, join(scratch, 'reward'));
    await expect(
      exportGguf({ model: join(scratch, 'reward'), type: 'f16', out: join(scratch, 'r.gguf') }),
    ).rejects.toThrow(/reward model/);
    const { code, err } = await attune('export', 'gguf', '--model', base, '--type', 'q5', '--out', 'x.gguf');
    expect([code, err]).toEqual([2, expect.stringMatching(/--type/)]);
  });
});
