/** Fast decoding from a quantised model: its distance from the exact one, and that nobody gets it without asking. */
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { settledTensors } from '../../../tests/support/settled-tensors.ts';
import { UserError } from '../../errors.ts';
import type { QuantisedMatrix } from '../../nn/index.ts';
import { aten, noGrad, scope, tensor } from '../../tensor/index.ts';
import { initModel, loadModel, type Model, type Precision, quantTypes, Sampler } from '../index.ts';
import { FastWeights } from '../weights/fast-weights.ts';
import { KvCache } from './cache/cache.ts';
import { DecodePlan, type PlanCopies } from './plan.ts';
import { SHAPE } from './small-model.test-support.ts';

const tiny = new URL('../../../models/tiny', import.meta.url).pathname;
/** On other CPUs rounding is not faster, and `fast` is exact. */
const rounds = aten<boolean>('attune::can_round');
const whole = (values: number[]) => tensor(BigInt64Array.from(values, BigInt));

/** log p of each next token, one list per position: each token is a step of decoding. */
function logprobs({ decoder }: Model, ids: readonly number[], copies: PlanCopies): number[][] {
  const cache = new KvCache(decoder.spec, { slots: 1, length: 64, blocks: 1 }, { dtype: 'float32', device: 'cpu' });
  cache.setTable(0, [0]);
  cache.upload();
  const plan = DecodePlan.of(decoder, cache, copies) as DecodePlan;
  const at = (id: number, position: number) =>
    scope(() =>
      noGrad(() =>
        plan
          .logits({ ids: whole([id]), positions: whole([position]), slots: whole([0]) })
          .logSoftmax(-1)
          .numbers(),
      ),
    );
  const found = ids.map(at);
  for (const each of [plan, cache]) each.dispose();
  return found;
}

const requests = [3, 14, 25].map((id) => ({ prompt: [id, 7], maxNewTokens: 6, seed: id, temperature: 1 }));
const written = async (model: Model, precision?: Precision, asked = requests) => {
  using sampler = new Sampler(model, precision && { precision });
  return (await sampler.generate(asked)).map(([response]) => ({
    ids: [...(response?.ids ?? [])],
    logprobs: [...(response?.logprobs ?? [])],
  }));
};

describe('precision', () => {
  // measured on 816 tokens: KL 3e-4 and 6e-4, at most 0.22 and 0.34 (docs/quantisation.md)
  it.each([
    ['int8', 1e-3, 0.4],
    ['int4', 2e-3, 0.6],
  ] as const)(
    'fast: log-probs of models/tiny in %s differ by a KL below %d, and by %d at most',
    async (quantType, most, furthest) => {
      using model = await loadModel(tiny, { quantType, dtype: 'float32' });
      const fast = FastWeights.of(model.decoder);
      expect(fast !== null).toBe(rounds);
      const [response] = await written(model, 'exact', [
        { prompt: [60, 61, 62], maxNewTokens: 50, seed: 1, temperature: 1 },
      ]);
      const ids = response?.ids ?? [];
      const [exact, found] = [{}, { fast }].map((copies) => logprobs(model, ids, copies)) as [number[][], number[][]];
      const differences = exact.map((row, t) => row.map((p, i) => p - ((found[t] as number[])[i] as number)));
      const kl = exact.map((row, t) =>
        row.reduce((sum, p, i) => sum + Math.exp(p) * ((differences[t] as number[])[i] as number), 0),
      );
      const mean = kl.reduce((sum, value) => sum + value, 0) / kl.length;
      expect(mean).toBeLessThan(most);
      const drawn = ids.slice(1).map((id, t) => Math.abs((differences[t] as number[])[id] as number));
      expect(Math.max(...drawn)).toBeLessThan(furthest);
      if (rounds) expect(mean).toBeGreaterThan(1e-7);
      fast?.dispose();
    },
  );

  it.each(quantTypes)('is exact unless asked: %s', async (quantType) => {
    using model = initModel({ ...SHAPE, hidden_size: 64, model_type: 'qwen3' }, { seed: 1, quantType });
    const exact = await written(model, 'exact');
    expect(await written(model)).toEqual(exact);
    const fast = await written(model, 'fast');
    if (rounds) expect(fast).not.toEqual(exact);
    else expect(fast).toEqual(exact);
    // neighbours in the batch do not matter
    for (const [i, request] of requests.entries()) expect(await written(model, 'fast', [request])).toEqual([fast[i]]);
  });

  it.each(quantTypes)('knows what it holds beside the weights before it does: %s', async (quantType) => {
    using model = await loadModel(tiny, { quantType, dtype: 'float32' });
    const fast = FastWeights.of(model.decoder);
    expect(fast !== null).toBe(rounds);
    if (fast === null) return;
    const told = fast.bytes;
    const matrices = [...model.decoder.projections()].map(({ quantised }) => quantised as QuantisedMatrix);
    const made = matrices.flatMap((matrix) => {
      const known = new Set([...matrix.tensors()].map(([, each]) => each));
      return fast.tensorsOf(matrix).filter(([, each]) => !known.has(each));
    });
    const maxima = made.reduce((sum, [, { numel }]) => sum + 4 * numel, 0);
    expect(told).toBe(fast.head().bytes + maxima);
    expect(maxima > 0).toBe(quantType === 'int4');
    fast.dispose();
  });

  // 70 wide: rows of w are not a multiple of the step of a sum
  it('changes nothing for plain weights, of which one row alone has the bits that it has among others', async () => {
    using model = initModel({ ...SHAPE, hidden_size: 70, intermediate_size: 45, model_type: 'qwen3' }, { seed: 1 });
    using half = initModel({ ...SHAPE, model_type: 'qwen3' }, { seed: 1, dtype: 'bfloat16' });
    for (const { decoder } of [model, half]) expect(FastWeights.of(decoder)).toBeNull();
    const exact = await written(model);
    expect(await written(model, 'fast')).toEqual(exact);
    for (const [i, request] of requests.entries()) expect(await written(model, 'fast', [request])).toEqual([exact[i]]);
  });

  it('sees a head that has changed, and leaves nothing behind', async () => {
    using model = initModel({ ...SHAPE, model_type: 'qwen3' }, { seed: 1, quantType: 'int8' });
    using sampler = new Sampler(model, { precision: 'fast' });
    const idsOf = async (from: Sampler) =>
      (await from.generate(requests)).map(([response]) => Array.from(response?.ids ?? []));
    const first = await idsOf(sampler);
    const before = await settledTensors();
    expect(await idsOf(sampler)).toEqual(first);
    expect(await settledTensors()).toEqual(before);
    noGrad(() => model.decoder.headWeight.mul_(-3));
    using fresh = new Sampler(model, { precision: 'fast' });
    const changed = await idsOf(sampler);
    expect(changed).not.toEqual(first);
    expect(changed).toEqual(await idsOf(fresh));
  });

  it('refuses other words', () => {
    using model = initModel({ ...SHAPE, model_type: 'qwen3' }, { seed: 1 });
    expect(() => new Sampler(model, { precision: 'quick' as Precision })).toThrow(UserError);
  });

  it('is asked for by name: by commands that write text, and by those that score with a reward model', () => {
    const root = new URL('../../', import.meta.url);
    const sources = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter(
      (path) => path.endsWith('.ts') && !path.endsWith('.test.ts'),
    );
    const naming = sources.filter((path) =>
      /\bprecision(s|Field)?\b\s*[:,})?=]|'fast'/.test(
        readFileSync(new URL(path, root), 'utf8').replace(/\/\*[\s\S]*?\*\/|\/\/.*/g, ''),
      ),
    );
    const writing = [
      ...['cli/chat.ts', 'cli/generate.ts', 'cli/options/model-fields.ts', 'cli/serve.ts', 'serve/registry.ts'],
      ...['models/generate/request.ts', 'models/generate/sampler.ts', 'models/text/language-model.ts'],
    ];
    const scoring = [
      ...['cli/evaluate-reward.ts', 'cli/score.ts', 'cli/terminal/precision.ts', 'models/score.ts'],
      ...['evaluate/ranked/reward-suite.ts', 'evaluate/reward.ts', 'rewards/reward-model.ts'],
      ...['rollouts/scorer.ts', 'trainers/fields.ts'], // --rm-precision; the policy itself has no such option
    ];
    expect(naming.filter((path) => !path.startsWith('tensor/')).sort()).toEqual(
      [...writing, ...scoring, 'models/index.ts', 'models/precision.ts'].sort(),
    );
  });
});
