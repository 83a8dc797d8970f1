/** Decoding steps of rows that have no tokens yet, for tests of what a step ends with or reads. */
import { KvCache } from '../../src/models/generate/cache/cache.ts';
import type { PlanCopies } from '../../src/models/generate/plan.ts';
import { Stepper } from '../../src/models/generate/stepper.ts';
import type { Model } from '../../src/models/index.ts';
import { integers, noGrad, scope, type Tensor } from '../../src/tensor/index.ts';
import { device } from './device.ts';

const whole = (count: number, of: (i: number) => number) =>
  integers(
    Array.from({ length: count }, (_, i) => of(i)),
    { device },
  );
const stateOf = (count: number) => ({
  ids: whole(count, (i) => 7 * i + 1),
  positions: whole(count, () => 0),
  slots: whole(count, (i) => i),
});

/** `body` with what steps of up to `most` rows of a model in bf16 give. */
export function withSteps(
  model: Model,
  most: number,
  body: (logits: (rows: number) => Tensor) => void,
  copies: PlanCopies = {},
): void {
  const size = { slots: most, length: 64, blocks: most + 1 };
  const cache = new KvCache(model.decoder.spec, size, { dtype: 'bfloat16', device });
  for (let slot = 0; slot < most; slot++) cache.setTable(slot, [slot]);
  cache.upload();
  using stepper = new Stepper(model.decoder, cache, () => copies);
  scope(() => noGrad(() => body((rows) => stepper.logits(stateOf(rows)))));
  cache.dispose();
}
