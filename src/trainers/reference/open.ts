/** From what a config says to the reference that direct alignment compares with. */
import type { PreferenceLoss } from '../../algorithms/index.ts';
import { UserError } from '../../errors.ts';
import type { MicroBatchLimits } from '../../models/decoder/responses.ts';
import { loadModel, type Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import type { Device } from '../../tensor/index.ts';
import { AdapterReference } from './adapters.ts';
import { checkQuantised, type ReferenceConfig } from './options.ts';
import { ModelReference, type Reference } from './reference.ts';

export interface ReferenceOptions {
  config: ReferenceConfig;
  algorithm: PreferenceLoss;
  policy: Model;
  device: Device;
  /** In examples, which may hold two responses, or in tokens. */
  limits: MicroBatchLimits;
  progress?: Progress;
}

/** The reference that a config asks for; null where the loss has none. */
export async function openReference(options: ReferenceOptions): Promise<Reference | null> {
  const { config, algorithm, policy, device, progress } = options;
  if (!algorithm.needsReference) return null;
  const { examples, tokens } = options.limits;
  const limits = { examples: examples === undefined ? undefined : 2 * examples, tokens };
  checkQuantised(config, policy.adapters !== null);
  if (policy.adapters !== null && typeof config.refModel !== 'string') return new AdapterReference(policy, limits);
  if (policy.adapters !== null && config.refModelUpdateFreq !== undefined) {
    throw new UserError(
      'A moving reference of a policy with adapters is the policy itself as it was: leave out ref_model, or train whole.',
    );
  }
  const name = typeof config.refModel === 'string' ? config.refModel : config.model;
  const quantType = config.refQuantType;
  const model = await loadModel(name, { dtype: policy.decoder.dtype, device, quantType, progress });
  if (model.decoder.spec.vocabSize !== policy.decoder.spec.vocabSize) {
    throw new UserError(
      `The reference ${name} has ${model.decoder.spec.vocabSize} tokens, the policy ${policy.decoder.spec.vocabSize}: they cannot be compared token by token.`,
    );
  }
  return new ModelReference(model, policy, limits);
}
