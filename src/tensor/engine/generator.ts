/**
 * Random generators besides the default one that `seed` sets. Drawing from one does not change the others' numbers.
 *
 *     const own = generator(7);
 *     aten('randn.generator', [3], own);
 *     aten('multinomial', weights, 1, { generator: own });
 */
import type { Device } from './dtype.ts';
import { attempt } from './error.ts';
import { native } from './native.ts';

const finalizer = new FinalizationRegistry<number>((id) => native.freeGenerator(id));

/** A random generator with its own seed and state, for operators that take a `generator`. */
export class Generator {
  /** @internal */
  readonly id: number;
  readonly device: Device;
  constructor(seed: number, device: Device = 'cpu') {
    this.id = attempt('generator', () => native.makeGenerator(device, seed), [seed, device]);
    this.device = device;
    finalizer.register(this, this.id);
  }
}

/** A new random generator with this seed. */
export function generator(seed: number, device: Device = 'cpu'): Generator {
  return new Generator(seed, device);
}
