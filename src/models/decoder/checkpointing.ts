/**
 * Backward with gradient checkpointing (Chen et al. 2016). Forward keeps only the blocks' inputs, and each block runs again in
 * backward: memory for the activations of one block instead of all.
 */
import { type Device, noGrad, rngState, scope, setRngState, type Tensor } from '../../tensor/index.ts';
import type { Layer, Pass } from './layer.ts';
import { applyNorm, type Norm } from './norm.ts';

/** The blocks, and what goes through them. */
export interface CheckpointedBlocks {
  embedded: Tensor;
  layers: readonly Layer[];
  finalNorm: Norm;
  pass: Pass;
  device: Device;
  /** Whether the blocks draw random numbers (dropout). A block that runs again must draw the same ones. */
  random: boolean;
}

/** Runs the blocks, `loss` on the final hidden states, and backward; returns the loss. */
export function checkpointedBackward(blocks: CheckpointedBlocks, loss: (hidden: Tensor) => Tensor): Tensor {
  const { embedded, layers, finalNorm, pass, device, random } = blocks;
  const inputs: Tensor[] = [];
  const states: Uint8Array[] = [];
  let x = embedded.detach();
  noGrad(() => {
    for (const layer of layers) {
      inputs.push(x);
      if (random) states.push(rngState(device));
      const input = x;
      x = scope(() => layer.forward(input, pass));
    }
  });
  const last = x.detach().requiresGrad_();
  const value = loss(applyNorm(finalNorm, last));
  value.backward();
  let gradient = last.grad;
  const resumed = random ? rngState(device) : null;
  // No gradient is needed below the first layer that is trained.
  const wanted = embedded.requiresGrad;
  const first = wanted ? 0 : layers.findIndex((layer) => layer.isTrained());
  for (let i = layers.length - 1; first >= 0 && i >= first && gradient !== null; i--) {
    const incoming: Tensor = gradient;
    gradient = scope(() => {
      const input = (inputs[i] as Tensor).detach().requiresGrad_(wanted || i > first);
      if (random) setRngState(states[i] as Uint8Array, device);
      const layer = layers[i] as Layer;
      scope(() => layer.forward(input, pass)).backward(incoming);
      return input.grad;
    });
  }
  if (resumed !== null) setRngState(resumed, device);
  if (gradient !== null && wanted) embedded.backward(gradient);
  return value.detach();
}
