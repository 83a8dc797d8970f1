/** Opens the reference of a config. */
import { checkSameVocabulary } from '../../models/files/tokenizer.ts';
import { loadModel, type Model } from '../../models/index.ts';
import type { Progress } from '../../progress.ts';
import { AdapterReference } from './adapters.ts';
import { checkMoving, type ReferenceConfig } from './options.ts';
import { ModelReference, type Reference } from './reference.ts';

export interface OpenReferenceOptions {
  config: ReferenceConfig;
  policy: Model;
  progress?: Progress;
}

/**
 * The reference of a policy with adapters is the policy at its start, with adapters off or swapped. Any other
 * reference, and a quantised one, is a separate model: `refModel`, or a second copy of the starting model.
 */
export async function openReference({ config, policy, progress }: OpenReferenceOptions): Promise<Reference> {
  const { refModel, refQuantType: quantType } = config;
  if (policy.adapters !== null && !refModel && quantType === undefined) return new AdapterReference(policy);
  checkMoving(config, policy.adapters !== null);
  const name = refModel || config.model;
  const { dtype, device } = policy.decoder;
  const model = await loadModel(name, { dtype, device, quantType, progress });
  try {
    checkSameVocabulary(policy, model, `The reference ${name}`);
  } catch (error) {
    model.dispose();
    throw error;
  }
  return new ModelReference(model, policy);
}
