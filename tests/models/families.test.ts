/**
 * The decoder against transformers, number by number: logits, loss, gradient norms and greedy tokens of tiny random models
 * (fixtures/, made by make_fixtures.py), and of those that lie in the shared folder where it is present.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Decoder, loadModel, packSequences } from '../../src/models/index.ts';
import { aten, liveTensors, noGrad, openSafetensors, scope, type Tensor, tensor } from '../../src/tensor/index.ts';

const own = join(import.meta.dirname, 'fixtures');
const shared = join(process.env.ATTUNE_SHARED ?? join(import.meta.dirname, '../../../shared'), 'fixtures/models');

interface Reference {
  loss: number;
  gradNorms: Record<string, number>;
  ids: number[][];
  logits: number[][][];
  /** Without their padding. */
  unevenIds: number[][];
  unevenLogits: number[][][];
  greedy: number[];
}

function reference(folder: string): Reference {
  const { loss, grad_norms } = JSON.parse(readFileSync(join(folder, 'reference.json'), 'utf8'));
  return scope(() => {
    using file = openSafetensors(join(folder, 'reference.safetensors'));
    const read = <T>(name: string) => file.tensor(name).to('float32').tolist() as T;
    const lengths = read<number[][]>('attention_mask').map((row) => row.reduce((a, b) => a + b));
    return {
      loss,
      gradNorms: grad_norms,
      ids: read<number[][]>('input_ids'),
      logits: read<number[][][]>('logits'),
      unevenIds: read<number[][]>('padded_ids').map((row, i) => row.slice(0, lengths[i])),
      unevenLogits: read<number[][][]>('padded_logits').map((row, i) => row.slice(0, lengths[i])),
      greedy: read<number[][]>('greedy')[0] as number[],
    };
  });
}

/** Logits of each sequence, all in one packed batch. */
function logitsOf(decoder: Decoder, sequences: number[][]): number[][][] {
  return noGrad(() =>
    scope(() => {
      const rows = decoder.logits(decoder.forward(packSequences(sequences))).tolist() as number[][];
      return sequences.map((sequence) => rows.splice(0, sequence.length));
    }),
  );
}

/** The mean cross-entropy of every next token, as transformers takes it. */
function loss(decoder: Decoder, hidden: Tensor, ids: number[][]): Tensor {
  const predicting: number[] = [];
  let start = 0;
  for (const row of ids) {
    for (let i = 0; i + 1 < row.length; i++) predicting.push(start + i);
    start += row.length;
  }
  const rows = tensor(predicting, { dtype: 'int64' });
  const targets = tensor(
    ids.flatMap((row) => row.slice(1)),
    { dtype: 'int64' },
  );
  return aten('cross_entropy_loss', decoder.logits(hidden.indexSelect(0, rows)), targets);
}

function largestDifference(found: number[][][], expected: number[][][]): number {
  const a = found.flat(2);
  const b = expected.flat(2);
  expect(a.length).toBe(b.length);
  return a.reduce((most, value, i) => Math.max(most, Math.abs(value - (b[i] as number))), 0);
}

/** transformers calls GPT-NeoX's head lm_head in memory and embed_out in files. */
const inFiles = (name: string) => (name === 'lm_head.weight' ? /^(lm_head|embed_out)\.weight$/ : undefined);

async function compare(folder: string): Promise<void> {
  const expected = reference(folder);
  using model = await loadModel(folder, { dtype: 'float32' });
  const { decoder } = model;
  const before = liveTensors();
  expect(largestDifference(logitsOf(decoder, expected.ids), expected.logits), 'logits').toBeLessThan(1e-4);
  const packed = logitsOf(decoder, expected.unevenIds);
  expect(largestDifference(packed, expected.unevenLogits), 'uneven logits').toBeLessThan(1e-4);
  const alone = expected.unevenIds.flatMap((ids) => logitsOf(decoder, [ids]));
  expect(largestDifference(packed, alone), 'packed against alone').toBeLessThan(1e-5);

  const greedy = expected.greedy.slice(0, 6);
  while (greedy.length < expected.greedy.length) {
    const last = logitsOf(decoder, [greedy])[0]?.at(-1) ?? [];
    greedy.push(last.indexOf(Math.max(...last)));
  }
  expect(greedy, 'greedy tokens').toEqual(expected.greedy);
  expect(liveTensors(), 'live tensors').toBeLessThanOrEqual(before + 3);

  for (const checkpointing of [false, true]) {
    scope(() => {
      decoder.requiresGrad_();
      const batch = packSequences(expected.ids);
      const value = decoder.backward(batch, (hidden) => loss(decoder, hidden, expected.ids), { checkpointing });
      expect(Math.abs(value.item() - expected.loss), 'loss').toBeLessThan(1e-5);
      const names = new Map([...decoder.namedWeights()].map((weight) => [weight.name, weight]));
      for (const [name, norm] of Object.entries(expected.gradNorms)) {
        const renamed = inFiles(name);
        const key = renamed ? [...names.keys()].find((candidate) => renamed.test(candidate)) : name;
        const found = names
          .get(key ?? name)
          ?.grad()
          ?.norm()
          .item();
        expect(found, `gradient of ${name}`).toBeDefined();
        // Some gradients are zero by theory (a key's bias shifts a whole row of scores): there only noise is left.
        expect(Math.abs((found as number) - norm), `gradient of ${name}`).toBeLessThan(1e-3 * norm + 1e-6);
        names.delete(key ?? name);
      }
      expect([...names.keys()], 'weights that transformers does not have').toEqual([]);
      for (const [, parameter] of decoder.parameters()) parameter.grad = null;
    });
  }
}

describe('tiny random models of every family', () => {
  const names = readdirSync(own).sort();
  it('are all there', () => {
    expect(names.length).toBeGreaterThanOrEqual(35);
  });
  it.each(names)('%s', (name) => compare(join(own, name)));
});

if (existsSync(shared)) {
  describe('shared fixtures', () => {
    it.each(readdirSync(shared).sort())('%s', (name) => compare(join(shared, name)));
  });
}
