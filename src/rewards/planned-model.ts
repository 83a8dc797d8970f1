/** A reward model described from its config and its files' headers alone, for plans. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { checkQuantType } from '../models/files/decoder.ts';
import { type InspectOptions, inspectModel, type QuantType } from '../models/index.ts';
import { noRewardHead } from './reward-notes.ts';

/** Bytes of its weights once loaded. Throws a UserError if the model does not exist or loading would refuse it. */
export async function rewardModelBytes(
  name: string,
  { quantType, ...options }: InspectOptions & { quantType?: QuantType } = {},
): Promise<number> {
  const { head, storedBytes, memory, adapter, folder, quantised } = await inspectModel(name, options);
  // Before a hub model's weights are downloaded, their headers are unknown, and with them whether there is a head. An
  // adapter may keep the head in its own file, so the presence of its base is not enough.
  const isHere =
    Object.keys(storedBytes).length > 0 && (adapter === null || existsSync(join(folder, 'adapter_model.safetensors')));
  if (isHere && head === null) throw noRewardHead(name);
  checkQuantType(name, quantised, quantType);
  return quantType === undefined ? memory.loadBytes : memory.quantisedBytes[quantType];
}
