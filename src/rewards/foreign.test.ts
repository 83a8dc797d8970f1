/**
 * Reward models trained by other libraries are read where those libraries read them: at the last token of the whole
 * text.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { addLora, headOutputs, loadModelFolder, saveModel } from '../models/index.ts';
import { Tokenizer } from '../text/index.ts';
import { loadRewardModel } from './reward-model.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-foreign-rewards-'));
afterAll(() => rmSync(folder, { recursive: true }));
const base = join(folder, 'base');
const items = [
  { prompt: 'What is 3 + 4?', response: 'The answer is 7.' },
  { prompt: 'red', response: 'blue' },
];
// The difference is the text after the end of the turn, such as ChatML's line feed.
const template =
  "{% for message in messages %}{{ message.role + ': ' + message.content + eos_token + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}";

const editJson = (path: string, edit: (json: Record<string, unknown>) => unknown) =>
  writeFileSync(path, JSON.stringify(edit(JSON.parse(readFileSync(path, 'utf8')))));

beforeAll(async () => {
  await tinyModel(base);
  editJson(join(base, 'tokenizer_config.json'), (json) => ({ ...json, chat_template: template }));
});

/** The score at each token of the rendered text, by a plain forward pass. */
async function scoresByToken(path: string, item: (typeof items)[0]) {
  using model = loadModelFolder(path, { dtype: 'float32' });
  const tokenizer = await Tokenizer.load(base);
  const text = `user: ${item.prompt}</s>\nassistant: ${item.response}</s>\n`.replaceAll(
    '</s>',
    tokenizer.token(tokenizer.eosId as number) as string,
  );
  const ids = [...tokenizer.encode(text)];
  const [scores] = headOutputs(model, [{ ids, places: ids.map((_, i) => i) }]);
  return { scores: [...(scores as Float32Array)], ids, end: tokenizer.eosId };
}

async function classifier(name: string, config: Record<string, unknown> = {}): Promise<string> {
  const path = join(folder, name);
  {
    using model = loadModelFolder(base, { dtype: 'float32' });
    const { weight } = model.addHead('reward', 1);
    weight.detach().copy_(model.decoder.weights.embedding.weight.detach().narrow(0, 40, 1));
    saveModel(model, path);
  }
  await (await Tokenizer.load(base)).save(path);
  editJson(join(path, 'config.json'), ({ attune: _, ...json }) => ({ ...json, ...config }));
  return path;
}

describe('a sequence classifier of transformers', () => {
  it('is read at the last token of the whole text', async () => {
    const path = await classifier('classifier');
    using scorer = await loadRewardModel(path, { dtype: 'float32' });
    expect(scorer.notes.readAt).toBe('end-of-text');
    const read = await scorer.score(items);
    for (const [i, item] of items.entries()) {
      const { scores, ids, end } = await scoresByToken(path, item);
      expect(ids.at(-1)).not.toBe(end);
      expect(read[i]).toBeCloseTo(scores.at(-1) as number, 5);
      expect(read[i]).not.toBeCloseTo(scores[ids.lastIndexOf(end as number)] as number, 4);
    }
  });

  it('says which texts have more tokens than it reads, and one token less is enough', async () => {
    const path = await classifier('short');
    const lengths = await Promise.all(items.map(async (item) => (await scoresByToken(path, item)).ids.length));
    const [longer = 0] = lengths;
    const cutAt = async (maxLength: number) => {
      using scorer = await loadRewardModel(path, { dtype: 'float32', maxLength });
      const cut: unknown[] = [];
      await scorer.score(items, { onTruncated: (item) => cut.push(item) });
      const misspelt = { onTruncate: () => {} } as never;
      await expect(scorer.score(items, misspelt)).rejects.toThrow('Did you mean "onTruncated"?');
      return cut;
    };
    expect(longer).toBe(Math.max(...lengths));
    expect(await cutAt(longer)).toEqual([]);
    expect(await cutAt(longer - 1)).toEqual([items[0]]);
  });

  it('is read before the padding token, where the text ends with that', async () => {
    const tokenizer = await Tokenizer.load(base);
    const [newline] = tokenizer.encode('\n');
    const path = await classifier('padded', { pad_token_id: newline });
    using scorer = await loadRewardModel(path, { dtype: 'float32' });
    const { scores, ids } = await scoresByToken(path, items[0] as (typeof items)[0]);
    expect(ids.at(-1)).toBe(newline);
    expect((await scorer.score(items))[0]).toBeCloseTo(scores.at(-2) as number, 5);
  });
});

/** Writes the weights as PEFT does, without attune's notes in the header. */
function dropNotes(path: string): void {
  const content = readFileSync(path);
  const size = Number(content.readBigUInt64LE(0));
  const { __metadata__: _, ...tensors } = JSON.parse(content.toString('utf8', 8, 8 + size)) as Record<string, unknown>;
  const header = Buffer.from(JSON.stringify({ __metadata__: { format: 'pt' }, ...tensors }).padEnd(size));
  writeFileSync(path, Buffer.concat([content.subarray(0, 8), header, content.subarray(8 + size)]));
}

it('a PEFT adapter for sequence classification on a causal base is a reward model', async () => {
  const path = join(folder, 'adapter');
  let expected: number;
  {
    using model = loadModelFolder(base, { dtype: 'float32' });
    addLora(model, { r: 2, targetModules: ['q_proj'] });
    const { weight } = model.addHead('reward', 1);
    weight.detach().copy_(model.decoder.weights.embedding.weight.detach().narrow(0, 50, 1));
    saveModel(model, path);
    const { ids } = await scoresByToken(await classifier('same'), items[0] as (typeof items)[0]);
    const [scores] = headOutputs(model, [{ ids, places: [ids.length - 1] }]);
    [expected = 0] = scores as Float32Array;
    dropNotes(join(path, 'adapter_model.safetensors'));
  }
  using scorer = await loadRewardModel(path, { dtype: 'float32' });
  expect((await scorer.score(items))[0]).toBeCloseTo(expected, 5);
  editJson(join(path, 'adapter_config.json'), (json) => ({ ...json, task_type: 'TOKEN_CLS' }));
  await expect(loadRewardModel(path)).rejects.toThrow(/not trained as a reward model/);
});
