/** A reward model from its config and its files' headers alone, for plans. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { checkQuantType } from '../models/files/decoder.ts';
import { type InspectOptions, inspectModel, type QuantType } from '../models/index.ts';
import { noRewardHead } from './reward-notes.ts';

/** The bytes of its weights once loaded; a UserError for a model that is not there, or that loading would refuse. */
export async function rewardModelBytes(
  name: string,
  { quantType, ...options }: InspectOptions & { quantType?: QuantType } = {},
): Promise<number> {
  const { head, storedBytes, memory, adapter, folder, quantised } = await inspectModel(name, options);
  // Of a hub model that was not fetched yet, the weights' headers are not known, nor whether they hold a head. An adapter
  // may have the head in its own file, which its base's being here says nothing about.
  const isHere =
    Object.keys(storedBytes).length > 0 && (adapter === null || existsSync(join(folder, 'adapter_model.safetensors')));
  if (isHere && head === null) throw noRewardHead(name);
  checkQuantType(name, quantised, quantType);
  return quantType === undefined ? memory.loadBytes : memory.quantisedBytes[quantType];
}
