import { describe, expect, it } from 'vitest';
import { noGrad, scope, tensor, zeros } from '../../tensor/index.ts';
import { filled, SHAPE } from '../generate/small-model.test-support.ts';
import { rounded } from '../weights/merged-weights.ts';
import { addLora, mergeAdapters, withoutAdapters } from './lora.ts';

describe('rounding to bf16 by a pattern', () => {
  it('leaves bf16 numbers as they are', () => {
    scope(() => {
      const exact = tensor(Float32Array.from([0, 1, -1.5, 0.0078125, -255, 3.0e-38]))
        .to('bfloat16')
        .to('float32');
      expect(rounded(exact).data()).toEqual(exact.data());
    });
  });

  it.each([1e-5, -3e-5, 6e-5])('keeps a change of %d on average, which the nearest number would lose', (change) => {
    scope(() => {
      const [whole, count] = [0.0234375, 40_000]; // neighbouring values are 1.2e-4 apart
      const changed = zeros([200, count / 200]).add(whole + change);
      const mean = rounded(changed).mean().item() - whole;
      expect(Math.abs(mean - change)).toBeLessThan(2e-6);
      const both = new Set(rounded(changed).data() as Float32Array);
      expect(both.size).toBe(2);
      for (const value of both) expect(Math.abs(value - whole)).toBeLessThan(1.3e-4);
      expect(rounded(changed).data()).toEqual(rounded(changed).data());
    });
  });
});

describe('the matrix of an adapted projection', () => {
  it.each([false, true])('is what merging writes (DoRA: %s)', (useDora) => {
    using model = filled({ ...SHAPE, model_type: 'llama' });
    const adapter = addLora(model, { r: 4, useDora });
    noGrad(() => {
      for (const [, parameter] of adapter.parameters()) parameter.normal_(0, 0.2);
    });
    const found = adapter.projections.map(({ projection }) =>
      noGrad(() => projection.adapter?.changedWeight()?.data()),
    );
    expect(found.length).toBeGreaterThan(0);
    mergeAdapters(model);
    for (const [i, { projection }] of adapter.projections.entries())
      expect(found[i]).toEqual(projection.weight?.data());
  });

  it('comes back under its old number, so that what was captured stays valid', () => {
    using model = filled({ ...SHAPE, model_type: 'llama' });
    const bare = model.decoder.arrangement;
    addLora(model, { r: 4 });
    const first = model.decoder.arrangement;
    expect(first).not.toBe(bare);
    expect(withoutAdapters(model, () => model.decoder.arrangement)).toBe(bare);
    expect(model.decoder.arrangement).toBe(first);
    addLora(model, { r: 2, name: 'second' });
    const second = model.decoder.arrangement;
    expect([bare, first]).not.toContain(second);
    model.adapters?.activate('default');
    expect(model.decoder.arrangement).toBe(first);
    mergeAdapters(model);
    expect([bare, first, second]).not.toContain(model.decoder.arrangement);
  });
});
