/** llama.cpp computes the same from our GGUF files as we do, for every family that it knows. */
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { exportGguf, loadModelFolder, packSequences } from '../../src/models/index.ts';
import { noGrad, scope } from '../../src/tensor/index.ts';
import { llamaCpp, logitsOf } from './llama-cpp.ts';

const fixtures = join(import.meta.dirname, '../models/fixtures');
const scratch = mkdtempSync(join(tmpdir(), 'attune-gguf-'));
const found = await llamaCpp();
afterAll(async () => {
  rmSync(scratch, { recursive: true });
  if ('llama' in found) await found.llama.dispose();
});

const ids = [5, 17, 3, 60, 42, 8, 33, 1, 66, 29, 12, 12, 50];

/** One token for each of 64 characters, without merges: these models have no tokenizer of their own. */
function addTokenizer(folder: string, vocabSize: number): void {
  const plain = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  const special = ['<unk>', '<s>', '</s>'].map((content, id) => ({ id, content, ...plain }));
  const characters = [...'ĠĊabcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'].slice(0, vocabSize - 3);
  const vocab = Object.fromEntries(
    [...special.map(({ content }) => content), ...characters].map((token, id) => [token, id]),
  );
  const step = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const json = {
    version: '1.0',
    added_tokens: special,
    pre_tokenizer: step,
    decoder: step,
    model: { type: 'BPE', vocab, merges: [] },
  };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ bos_token: '<s>', eos_token: '</s>' }));
}

const refused = new Map([
  ['bloom-normed-residual', /a residual that is the normed input/],
  ['falcon-alibi', /ALiBi/],
  ['falcon-alibi-parallel', /ALiBi/],
  ['falcon-new-one-norm', /biases/],
  ['falcon-sequential', /one after the other/],
  ['gpt2-by-layer', /scaled by the layer/],
  ['gpt2-tanh', /activation tanh/],
  ['gpt2-unscaled', /without a scale/],
  ['gpt_neo', /does not run models of the family "gpt_neo"/],
  ['gpt_neo-local-first', /"gpt_neo"/],
  ['gpt_neox-odd-share', /odd share/],
  ['gptj', /does not run models of the family "gptj"/],
  ['gptj-whole-head', /"gptj"/],
  ['llama-dynamic', /dynamic rope/],
  ['llama-head-dim', /activation gelu_tanh/],
  ['llama-yarn-tuned', /truncate/],
  ['olmo2-bias', /bias on its output/],
  ['qwen3-bias', /bias on its output/],
]);

function prepared(name: string): string {
  const folder = join(scratch, name);
  cpSync(join(fixtures, name), folder, { recursive: true });
  addTokenizer(folder, 67);
  return folder;
}

it.each([...refused])('%s is refused', async (name, reason) => {
  await expect(exportGguf({ model: prepared(name), type: 'f32', out: join(scratch, `${name}.gguf`) })).rejects.toThrow(
    reason,
  );
});

const exported = readdirSync(fixtures).filter((name) => !refused.has(name));

if ('missing' in found)
  it(`llama.cpp is not to be had here: ${found.missing}`, () => expect(found.missing).not.toBe(''));
else
  it.each(exported)('%s', async (name) => {
    const folder = prepared(name);
    const { path } = await exportGguf({ model: folder, type: 'f32', out: join(scratch, `${name}.gguf`) });
    using model = loadModelFolder(folder, { dtype: 'float32' });
    const { spec } = model.decoder;
    const window = Math.min(...spec.attention.windows.filter((size) => size !== null), ids.length);
    const asked = ids.slice(0, window);
    const ours = noGrad(() =>
      scope(() => model.decoder.logits(model.decoder.forward(packSequences([asked]))).tolist() as number[][]),
    );
    const theirs = await found.llama.loadModel({ modelPath: path, gpuLayers: 0 });
    const logits = await logitsOf(theirs, asked, spec.vocabSize);
    await theirs.dispose();
    const differences = logits.flatMap((row, i) => row.map((value, id) => Math.abs(value - (ours[i]?.[id] as number))));
    // ggml looks its gelu up in a table of f16
    expect(Math.max(...differences)).toBeLessThan(spec.mlp.activation === 'silu' ? 2e-5 : 5e-3);
  });
