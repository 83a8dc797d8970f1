/** Drawing tokens: the device draws what the CPU draws. Small and large vocabularies have kernels of their own. */
import { describe, expect, it } from 'vitest';
import { type RuleTensors, sampleAndAdvance, sampleNext } from '../../src/models/generate/sampling.ts';
import { type DType, full, integers, randn, scope, seed, type Tensor, tensor } from '../../src/tensor/index.ts';
import { device, gap, hasCuda } from './device.ts';

const whole = (rows: number, pick: (i: number) => number, place: string) =>
  integers(
    Array.from({ length: rows }, (_, i) => pick(i)),
    { device: place },
  );

/** Other rules in every row. */
function rules(rows: number, place: string): RuleTensors {
  const floats = (pick: (i: number) => number) =>
    tensor(
      Float32Array.from({ length: rows }, (_, i) => pick(i)),
      { device: place },
    );
  return {
    temperature: floats((i) => [0, 0.7, 1, 1.3][i % 4] as number),
    topK: whole(rows, (i) => (i % 3 === 0 ? 50 : i % 7 === 4 ? 1000 : 0), place),
    topP: floats((i) => (i % 2 === 0 ? 0.9 : 1)),
    minP: floats((i) => (i % 5 === 0 ? 0.05 : 0)),
    seeds: whole(rows, (i) => i, place),
  };
}

function draw(logits: Tensor, place: string): { ids: number[]; logp: Tensor; kept: Tensor } {
  const rows = logits.size(0);
  const drawn = sampleNext(
    logits.to(place),
    rules(rows, place),
    whole(rows, (i) => i * 7, place),
  );
  return { ids: drawn.ids.numbers(), logp: drawn.logp, kept: drawn.kept };
}

/**
 * In bf16 many words have the same logit, and a fifth of them −∞. A third of the rows is nearly flat around 0, two are so close to 0 that
 * all of their words are nearly as likely, two far above it, and of the last rows only a few words are possible.
 */
function someLogits(rows: number, words: number, dtype: DType): Tensor {
  const logits = randn([rows, words]).mul(3);
  if (dtype === 'bfloat16') logits.narrow(1, 0, Math.floor(words / 5)).fill_(Number.NEGATIVE_INFINITY);
  const third = Math.floor(rows / 3);
  logits.narrow(0, 0, third).mul_(0.2);
  logits.narrow(0, third, 2).mul_(1e-4);
  logits.narrow(0, third + 2, 2).add_(100);
  logits
    .narrow(0, rows - 4, 4)
    .narrow(1, 30, words - 30)
    .fill_(Number.NEGATIVE_INFINITY);
  logits
    .narrow(0, rows - 4, 4)
    .narrow(1, 0, 30)
    .copy_(randn([4, 30]));
  return logits.to(dtype);
}

/** One rule for all rows. */
function oneRule(
  rows: number,
  rule: { temperature: number; topK?: number; topP?: number; minP?: number },
): RuleTensors {
  const floats = (value: number) => full([rows], value, { device });
  return {
    temperature: floats(rule.temperature),
    topK: whole(rows, () => rule.topK ?? 0, device),
    topP: floats(rule.topP ?? 1),
    minP: floats(rule.minP ?? 0),
    seeds: whole(rows, (i) => i, device),
  };
}
const drawBy = (rule: RuleTensors, logits: Tensor) =>
  sampleNext(
    logits,
    rule,
    whole(logits.size(0), (i) => i * 7, device),
  );

// With rows for one block, and with tiles of 1,280 words that are full, nearly full and nearly empty.
const someWords = hasCuda ? [200, 2312, 5120, 5400, 151_936, 330_000] : [200, 2312];
const dtypes = ['float32', 'bfloat16', 'float16'] as const;
const byWordsAndType = someWords.flatMap((words) => dtypes.map((dtype) => [words, dtype] as const));

const sizes: [rows: number, words: number][] = hasCuda
  ? [
      [512, 5000],
      [256, 32_003],
      [16, 151_936],
      [256, 151_936],
    ]
  : [[64, 5000]];

describe(`drawing on ${device}`, () => {
  it.each(
    sizes.flatMap(([rows, words]) =>
      (['float32', 'bfloat16', 'float16'] as const).map((dtype) => [rows, words, dtype] as const),
    ),
  )('%i rows of %i words in %s', (rows, words, dtype) =>
    scope(() => {
      seed(3);
      const logits = someLogits(rows, words, dtype);
      const here = draw(logits, 'cpu');
      const there = draw(logits, device);
      // Two words whose cumulative probabilities lie within a rounding of the drawn number may change places.
      const different = here.ids.flatMap((id, i) => (id === there.ids[i] ? [] : [i]));
      expect(different.length).toBeLessThanOrEqual(Math.max(2, rows / 64));
      const alike = integers(
        rows === different.length ? [] : here.ids.flatMap((_, i) => (different.includes(i) ? [] : [i])),
      );
      const pick = (logp: Tensor) => logp.to('cpu').indexSelect(0, alike);
      expect(gap(pick(there.logp), pick(here.logp))).toBeLessThanOrEqual(1e-4);
      expect(gap(there.kept.to('cpu'), here.kept)).toBeLessThanOrEqual(1e-4);
    }),
  );

  it.each(sizes)('gives a row of %i the same alone, of %i words', (rows, words) =>
    scope(() => {
      seed(4);
      const logits = someLogits(rows, words, 'bfloat16').to(device);
      const counters = whole(rows, (i) => i * 7, device);
      const rule = rules(rows, device);
      const all = sampleNext(logits, rule, counters);
      for (const row of [0, 1, rows - 2]) {
        const own = Object.fromEntries(Object.entries(rule).map(([name, of]) => [name, of.narrow(0, row, 1).clone()]));
        const alone = sampleNext(
          logits.narrow(0, row, 1).clone(),
          own as unknown as RuleTensors,
          counters.narrow(0, row, 1).clone(),
        );
        for (const part of ['ids', 'logp', 'kept'] as const)
          expect(alone[part].numbers()).toEqual([all[part].numbers()[row]]);
      }
    }),
  );

  it.each(sizes)('moves %i rows on by themselves, of %i words', (rows, words) =>
    scope(() => {
      seed(5);
      const turns = 3;
      const logits = someLogits(rows, words, 'bfloat16').to(device);
      const rule = rules(rows, device);
      const state = {
        ids: whole(rows, () => -1, device),
        positions: whole(rows, (i) => 5 * i, device),
        limits: whole(rows, (i) => 5 * i + (i % 4), device),
        slots: whole(rows, (i) => i, device),
        turns: whole(rows, () => 0, device),
        idleSlot: rows,
      };
      // one column more than there are rows: it stays as it is
      const out = {
        ids: full([turns, rows + 1], -7, { dtype: 'int64', device }),
        logp: full([turns, rows + 1], -7, { device }),
        kept: full([turns, rows + 1], -7, { device }),
      };
      for (let step = 0; step < turns + 1; step++) {
        const isDone = (i: number) => i % 4 > 0 && step >= i % 4; // rows that are at their limit from the start stay where they are
        const positions = Array.from({ length: rows }, (_, i) => (isDone(i) ? 0 : 5 * i + Math.min(step, i % 4)));
        expect(state.positions.numbers()).toEqual(positions);
        expect(state.slots.numbers()).toEqual(positions.map((_, i) => (isDone(i) ? rows : i)));
        const counters = integers(
          positions.map((position) => position + 1),
          { device },
        );
        const expected = sampleNext(logits, rule, counters);
        sampleAndAdvance(logits, rule, state, out);
        expect(state.ids.numbers()).toEqual(expected.ids.numbers());
        expect(new Set(state.turns.numbers())).toEqual(new Set([(step + 1) % turns]));
        for (const part of ['ids', 'logp', 'kept'] as const) {
          const stored = out[part].select(0, step % turns).numbers();
          expect(stored).toEqual([...expected[part].numbers(), -7]);
        }
      }
    }),
  );

  it.each(byWordsAndType)('takes no word that is NaN, and 0 where all are: %i words in %s', (words, dtype) =>
    scope(() => {
      seed(6);
      const rows = 8;
      const all = randn([rows, words]).mul(3);
      all.narrow(0, 0, 2).fill_(Number.NaN);
      all.narrow(0, 2, 2).fill_(Number.NEGATIVE_INFINITY);
      all
        .narrow(0, 4, 2)
        .narrow(1, 3, words - 3)
        .fill_(Number.NaN);
      all
        .narrow(0, 6, 1)
        .narrow(1, Math.floor(words / 2), 1)
        .fill_(Number.NaN);
      const logits = all.to({ device, dtype });
      const best = [0, 1, 2, 3, 4, 5, 6, 7].map((row) => {
        const numbers = logits.select(0, row).to('float32').numbers();
        return Math.max(
          0,
          numbers.indexOf(numbers.reduce((most, z) => (z > most ? z : most), Number.NEGATIVE_INFINITY)),
        );
      });
      best.fill(0, 0, 4);
      for (const rule of [
        { temperature: 0 },
        { temperature: 1 },
        { temperature: 1, topP: 0.9 },
        { temperature: 0.7, topK: 2, topP: 0.95 },
        { temperature: 1, minP: 0.3 },
      ]) {
        const { ids, logp } = drawBy(oneRule(rows, rule), logits);
        const [found, sure] = [ids.numbers(), logp.numbers()];
        expect(found.slice(0, 4)).toEqual([0, 0, 0, 0]);
        for (const [row, id] of found.entries()) {
          if (rule.temperature === 0) expect(id, `row ${row}`).toBe(best[row]);
          if (row > 3) expect(all.select(0, row).select(0, id).item(), `row ${row}`).not.toBeNaN();
          if (row < 7) expect(sure[row], `row ${row}`).toBeNaN();
          else expect(sure[row]).toBeLessThanOrEqual(0);
        }
        if (rule.topK) for (const row of [4, 5]) expect(found[row]).toBeLessThan(3);
      }
      // rows that go on by themselves are moved on
      const zero = () => whole(rows, () => 0, device);
      const state = { ids: zero(), positions: zero(), limits: zero(), slots: zero(), turns: zero(), idleSlot: 0 };
      const out = { ids: full([1, rows], -7, { dtype: 'int64', device }), logp: zero(), kept: zero() };
      const floats = { logp: out.logp.to('float32').view(1, rows), kept: out.kept.to('float32').view(1, rows) };
      sampleAndAdvance(logits, oneRule(rows, { temperature: 0 }), state, { ...out, ...floats });
      expect(out.ids.numbers()).toEqual(best);
    }),
  );

  it.each(byWordsAndType)('takes the likeliest word at the lowest temperatures: %i words in %s', (words, dtype) =>
    scope(() => {
      seed(7);
      const logits = randn([4, words]).mul(3).add(20).to({ device, dtype });
      logits.select(0, 1).narrow(0, 150, 1).fill_(50);
      const best = drawBy(oneRule(4, { temperature: 0 }), logits).ids.numbers();
      for (const temperature of [9e-6, 2e-8, 1e-12, 1e-38, 1e-42])
        for (const topP of [1, 0.9]) {
          const { ids, logp, kept } = drawBy(oneRule(4, { temperature, topP, minP: 0.01 }), logits);
          expect(ids.numbers(), `${temperature}`).toEqual(best);
          expect(logp.numbers()[1]).toBe(0);
          expect(kept.numbers()).toEqual([1, 1, 1, 1]);
        }
    }),
  );

  // Of bf16 the numbers up to 2⁻¹⁰ share a bin at first. The words near 0 are those at which min-p, top-k and top-p cut.
  it.each(byWordsAndType)('cuts by top-k, then top-p, then min-p, near 0 too: %i words in %s', (words, dtype) =>
    scope(() => {
      seed(8);
      const temperature = 0.0015;
      const near = randn([1, words]).mul(3e-4);
      near.narrow(1, 0, 20).mul_(8);
      near.narrow(1, 150, words - 150).sub_(0.1);
      const logits = near.to({ device, dtype });
      const weights = logits
        .to('float32')
        .numbers()
        .sort((a, b) => b - a);
      const likely = weights.map((z) => Math.exp((z - (weights[0] as number)) / temperature));
      const mass = likely.reduce((a, b) => a + b);
      for (const topK of [15, 40, 120])
        for (const topP of [0.8, 0.95, 0.995])
          for (const minP of [0.02, 0.1, 0.2, 0.24, 0.28, 0.35]) {
            const ofTopK = likely.filter((w) => w >= (likely[topK - 1] as number));
            const wanted = topP * ofTopK.reduce((a, b) => a + b);
            let [reached, last] = [0, -1];
            while (reached < wanted) reached += ofTopK[++last] as number;
            const least = ofTopK[last] as number;
            const left = ofTopK.filter((w) => w >= least && w >= minP).reduce((a, b) => a + b);
            const { kept } = drawBy(oneRule(1, { temperature, topK, topP, minP }), logits);
            expect(Math.abs(kept.item() - left / mass), `${topK}, ${topP}, ${minP}`).toBeLessThan(1e-3);
          }
    }),
  );

  it('refuses rows whose state does not fit', () =>
    scope(() => {
      const logits = randn([2, 10]).to(device);
      const one = () => whole(1, () => 0, device);
      const state = { ids: one(), positions: one(), limits: one(), slots: one(), turns: one(), idleSlot: 0 };
      const out = { ids: whole(2, () => 0, device), logp: randn([2]).to(device), kept: randn([2]).to(device) };
      expect(() => sampleAndAdvance(logits, rules(2, device), state, out)).toThrow(/per row/);
    }));
});
