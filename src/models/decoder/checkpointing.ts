/**
 * Backward block by block. With gradient checkpointing (Chen et al. 2016), forward keeps only the blocks' inputs and
 * each block runs again in backward, so that only one block's activations are in memory. A watcher of the blocks needs
 * it too.
 */
import { type Device, noGrad, rngState, scope, setRngState, type Tensor } from '../../tensor/index.ts';
import type { Layer, Pass } from './layer.ts';
import { applyNorm, type Norm } from './norm.ts';

/**
 * Notified as a pass goes through the blocks, so that src/dist can gather weights and reduce gradients alongside. None
 * of its methods wait for JavaScript's event loop.
 */
export interface PassWatcher {
  /** Whether blocks must run again in backward, as with gradient checkpointing. */
  readonly recomputes: boolean;
  beforeForward(block: number): void;
  afterForward(block: number): void;
  beforeBackward(block: number): void;
  /** The block's gradients are complete. */
  afterBackward(block: number): void;
}

/** The blocks and their input. */
export interface WatchedBlocks {
  embedded: Tensor;
  layers: readonly Layer[];
  finalNorm: Norm;
  pass: Pass;
  device: Device;
  /** Whether the blocks draw random numbers (dropout). A block that runs again must draw the same ones. */
  random: boolean;
  /** Runs each block again in backward instead of keeping its activations. */
  recompute: boolean;
  watcher: PassWatcher | null;
}

/** Runs the blocks, `loss` on the final hidden states, and backward; returns the loss. */
export function backwardByBlocks(blocks: WatchedBlocks, loss: (hidden: Tensor) => Tensor): Tensor {
  const { embedded, layers, finalNorm, device, watcher } = blocks;
  const random = blocks.random && blocks.recompute;
  // No gradient is needed below the first layer that is trained.
  const wanted = embedded.requiresGrad;
  const first = wanted ? 0 : layers.findIndex((layer) => layer.isTrained());
  const inputOf = (x: Tensor, i: number) => x.detach().requiresGrad_(wanted || i > first);
  const { inputs, outputs, states, x } = forwardByBlocks(blocks, random, first, inputOf);
  const last = x.detach().requiresGrad_();
  const value = loss(applyNorm(finalNorm, last));
  value.backward();
  let gradient = last.grad;
  const resumed = random ? rngState(device) : null;
  for (let i = layers.length - 1; first >= 0 && i >= first && gradient !== null; i--) {
    const incoming: Tensor = gradient;
    watcher?.beforeBackward(i);
    gradient = scope(() => {
      const kept = outputs[i];
      if (kept !== undefined) {
        kept.backward(incoming);
        return (inputs[i] as Tensor).grad;
      }
      const input = inputOf(inputs[i] as Tensor, i);
      if (random) setRngState(states[i] as Uint8Array, device);
      const layer = layers[i] as Layer;
      scope(() => layer.forward(input, blocks.pass)).backward(incoming);
      return input.grad;
    });
    watcher?.afterBackward(i);
  }
  if (resumed !== null) setRngState(resumed, device);
  if (gradient !== null && wanted) embedded.backward(gradient);
  return value.detach();
}

/**
 * The blocks' inputs, their outputs if activations are kept, and the generators' states if random numbers must be
 * repeated.
 */
function forwardByBlocks(
  { embedded, layers, pass, device, recompute, watcher }: WatchedBlocks,
  random: boolean,
  first: number,
  inputOf: (x: Tensor, i: number) => Tensor,
) {
  const inputs: Tensor[] = [];
  const outputs: (Tensor | undefined)[] = [];
  const states: Uint8Array[] = [];
  let x = embedded.detach();
  for (const [i, layer] of layers.entries()) {
    watcher?.beforeForward(i);
    const keeps = !recompute && first >= 0 && i >= first;
    const input = keeps ? inputOf(x, i) : x;
    inputs.push(input);
    if (random) states.push(rngState(device));
    const forward = () => scope(() => layer.forward(input, pass));
    x = keeps ? forward() : noGrad(forward);
    outputs.push(keeps ? x : undefined);
    watcher?.afterForward(i);
  }
  return { inputs, outputs, states, x };
}
