/** The two dialects in which a configuration writes its rotary embedding. */
import { describe, expect, it } from 'vitest';
import { familyOf } from './index.ts';
import type { Positions } from './spec.ts';

const rope = (config: object) => familyOf(config, 'config.json').spec.positions as Extract<Positions, { kind: 'rope' }>;
const llama = { model_type: 'llama', hidden_size: 32, num_attention_heads: 4, num_hidden_layers: 2 };
const neox = { ...llama, model_type: 'gpt_neox' };

describe('rope', () => {
  const scalings = [
    { rope_type: 'linear', factor: 4 },
    { rope_type: 'dynamic', factor: 2 },
    { rope_type: 'llama3', factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 512 },
    { rope_type: 'yarn', factor: 4, original_max_position_embeddings: 512, beta_fast: 16, truncate: false },
  ];
  it.each(scalings)('is the same in both dialects: $rope_type', (scaling) => {
    const { rope_type, ...rest } = scaling;
    const five = rope({ ...llama, rope_parameters: { rope_theta: 5e5, ...scaling } });
    expect(rope({ ...llama, rope_theta: 5e5, rope_scaling: { type: rope_type, ...rest } })).toEqual(five);
    expect(rope({ ...llama, rope_theta: 5e5, rope_scaling: { rope_type, type: rope_type, ...rest } })).toEqual(five);
    expect(five.theta).toBe(5e5);
    expect(five.scaling?.kind).toBe(rope_type);
  });

  it('reads plain rope from either, with 10000 where none is given', () => {
    const plain = { kind: 'rope', interleaved: false, theta: 1e6, rotaryDim: 8 };
    expect(rope({ ...llama, rope_theta: 1e6, rope_scaling: null })).toEqual(plain);
    expect(rope({ ...llama, rope_parameters: { rope_type: 'default', rope_theta: 1e6 } })).toEqual(plain);
    expect(rope(llama).theta).toBe(10_000);
  });

  it('fills in the original length and the temperature', () => {
    const scaled = (scaling: object) => rope({ ...llama, max_position_embeddings: 256, rope_scaling: scaling }).scaling;
    expect(scaled({ type: 'dynamic', factor: 2 })).toMatchObject({ originalMax: 256 });
    expect(scaled({ type: 'yarn', factor: 4 })).toEqual({
      ...{ kind: 'yarn', factor: 4, originalMax: 256, betaFast: 32, betaSlow: 1, truncate: true },
      attentionFactor: 0.1 * Math.log(4) + 1,
    });
    // 0.93343… is what transformers gives for these two weights.
    expect(scaled({ type: 'yarn', factor: 16, mscale: 0.6, mscale_all_dim: 0.9 })).toMatchObject({
      attentionFactor: expect.closeTo(0.9334330004364884, 12),
    });
    expect(scaled({ type: 'yarn', factor: 2, attention_factor: 0.8 })).toMatchObject({ attentionFactor: 0.8 });
  });

  it("reads GPT-NeoX's own names, and an odd share", () => {
    expect(rope(neox)).toMatchObject({ theta: 10_000, rotaryDim: 2 });
    expect(rope({ ...neox, rotary_pct: 0.5, rotary_emb_base: 500 })).toMatchObject({ theta: 500, rotaryDim: 4 });
    expect(rope({ ...neox, rope_parameters: { rope_theta: 500, partial_rotary_factor: 0.5 } })).toMatchObject({
      ...{ theta: 500, rotaryDim: 4 },
    });
    expect(rope({ ...neox, rotary_pct: 0.4 })).toMatchObject({ rotaryDim: 4, exponentDim: 3 });
    expect(() => rope({ ...neox, rope_theta: 500 })).toThrow(
      /rope_theta is 500: this family's name for it is rotary_emb_base/,
    );
  });

  it('refuses two dialects that disagree', () => {
    const both = { rope_scaling: { type: 'linear', factor: 2 }, rope_parameters: { rope_type: 'linear', factor: 4 } };
    expect(() => rope({ ...llama, ...both })).toThrow(/rope_scaling and rope_parameters disagree about factor/);
  });
});
