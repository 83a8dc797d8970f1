/** How many tensors live once the collector has taken those that nobody holds: of earlier tests in the same process, say. */
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { liveTensors } from '../../src/tensor/index.ts';

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/**
 * A test that waits for something counts its tensors from here on: otherwise the collector may take older ones while it waits, and the
 * count falls.
 */
export async function settledTensors(): Promise<number> {
  // Tensors are freed some turns of the event loop after the collector has found them.
  for (let last = Number.POSITIVE_INFINITY, quiet = 0; quiet < 3; quiet = liveTensors() < last ? 0 : quiet + 1) {
    last = liveTensors();
    collect();
    await sleep(5);
  }
  return liveTensors();
}
