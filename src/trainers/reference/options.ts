/** A reference's options, named as in configs, and checks of their combinations. */
import { UserError } from '../../errors.ts';
import type { QuantType } from '../../models/index.ts';

export interface ReferenceConfig {
  /** The trained model. It is also the reference unless another is named. */
  model: string;
  /** Another model as the reference; false for none. */
  refModel?: string | false;
  refQuantType?: QuantType;
  /** Number of steps after which the policy becomes the reference. */
  refModelUpdateFreq?: number;
}

/** With adapters a moving reference is a copy of the policy's own adapters, so it cannot be another model. */
export function checkMoving(
  { refModel, refQuantType, refModelUpdateFreq }: Omit<ReferenceConfig, 'model'>,
  adapters: boolean,
): void {
  if (!adapters || refModelUpdateFreq === undefined || (!refModel && refQuantType === undefined)) return;
  throw new UserError(
    'A moving reference of a policy with adapters is the policy itself as it was: leave out --ref-model, or train whole.',
  );
}

/** A quantised reference is a separate model and cannot be updated. */
export function checkQuantised(
  { refQuantType, refModel, refModelUpdateFreq }: Omit<ReferenceConfig, 'model'>,
  adapters: boolean,
): void {
  if (refQuantType === undefined) return;
  if (refModelUpdateFreq !== undefined) {
    throw new UserError(
      'A moving reference (--ref-model-update-freq) takes over the weights of the policy, so it cannot be quantised (--ref-quant-type).',
    );
  }
  if (adapters && typeof refModel !== 'string') {
    throw new UserError(
      `--ref-quant-type ${refQuantType}: with LoRA the reference is the policy's own base, which takes no memory of its own. Leave the option out, or name another model with --ref-model.`,
    );
  }
}
