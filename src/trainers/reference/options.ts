/** The options of a reference, named as in configs, and what does not go together. */
import { UserError } from '../../errors.ts';
import type { QuantType } from '../../models/index.ts';

export interface ReferenceConfig {
  /** The model that is trained: the reference too, where no other is named. */
  model: string;
  /** Another model as the reference; false where the loss must do without. */
  refModel?: string | false;
  refQuantType?: QuantType;
  /** Steps after which the policy becomes the reference. */
  refModelUpdateFreq?: number;
}

/** Quantised weights are a model's own, and stay as they are. */
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
