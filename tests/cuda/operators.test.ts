/** Our operators, their values and gradients, on the device against the CPU. */
import { describe, expect, it } from 'vitest';
import {
  aten,
  linearDivergence,
  linearLogprob,
  randint,
  randn,
  rmsNorm,
  scope,
  seed,
  type Tensor,
} from '../../src/tensor/index.ts';
import { device, gapOfFunction, precisions } from './device.ts';

describe.each(precisions)(`operators on ${device} in %s`, (dtype, bound) => {
  const holds = (inputs: Tensor[], fn: (...inputs: Tensor[]) => Tensor) =>
    expect(gapOfFunction(inputs, fn, dtype)).toBeLessThanOrEqual(bound);

  it.each([false, true])('rope (interleaved: %s)', (interleaved) =>
    scope(() => {
      seed(1);
      const angles = randn([40, 16]);
      holds([randn([40, 6, 48])], (x) =>
        aten('attune::rope', x, angles.cos().to(x.device), angles.sin().to(x.device), interleaved),
      );
    }),
  );

  it('swiglu', () =>
    scope(() => {
      seed(2);
      holds([randn([64, 256])], (x) => aten('attune::swiglu', x));
    }));

  it('rms_norm', () =>
    scope(() => {
      seed(3);
      holds([randn([64, 128]), randn([128])], (x, weight) => rmsNorm(x, weight, 1e-6));
    }));

  it('packed_attention', () =>
    scope(() => {
      seed(4);
      const inputs = [randn([300, 4, 64]), randn([300, 2, 64]), randn([300, 2, 64])];
      holds(inputs, (q, k, v) => aten('attune::packed_attention', q, k, v, [0, 37, 38, 300], 0.125, 50));
    }));

  it('linear_logprob', () =>
    scope(() => {
      seed(5);
      const targets = randint(0, 500, [33]);
      holds([randn([33, 64]).mul(0.3), randn([500, 64])], (hidden, weight) => {
        const options = { temperature: 0.7, chunk: 8 };
        const { logp, entropy } = linearLogprob(hidden, weight, targets.to(hidden.device), options);
        return logp.add(entropy);
      });
    }));

  it.each([{}, { reverse: true }, { top: 8 }])('linear_divergence %o', (kind) =>
    scope(() => {
      seed(6);
      const [theirs, head] = [randn([33, 48]).mul(0.3).to(dtype), randn([500, 48]).to(dtype)];
      const targets = randint(0, 500, [33]);
      const compared = (hidden: Tensor, weight: Tensor) => {
        const on = (tensor: Tensor) => tensor.to(hidden.device);
        const teacher = { hidden: on(theirs).to(hidden.dtype), weight: on(head).to(hidden.dtype) };
        const options = { ...kind, temperature: 0.7, chunk: 8 };
        return linearDivergence({ hidden, weight }, teacher, on(targets), options).divergence;
      };
      const [hidden, weight] = [randn([33, 64]).mul(0.3), randn([500, 64])] as const;
      holds([hidden, weight], compared);
      // the head is frozen under adapters: the gradient is then made in the forward pass
      holds([hidden], (own) => compared(own, weight.to(own.device).to(own.dtype)));
    }),
  );
});
