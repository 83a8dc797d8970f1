/**
 * A run goes on with the parameters that it began with: with others its optimiser's state has nothing to be restored to. Its rollouts
 * come from the same kind of cache, so that the log-probs of all steps can be compared.
 */
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { deviceOf, dtypeOf } from '../../models/index.ts';
import { readJson } from '../../runs/json-files.ts';
import { quoted } from '../../shell.ts';
import { configFile } from './state.ts';

type Saved = Record<string, unknown>;

/** Options that decide which parameters there are and how they, and the sampler's cache, are held, as configs are saved. */
const deciding = [
  ...['dtype', 'lora', 'quant_type', 'lora_r', 'lora_alpha', 'lora_target_modules', 'lora_bias'],
  ...['use_rslora', 'use_dora'],
  'cache_dtype',
];
/** What a config means that does not have an option; one that is not here is then left to the model's family. */
const unsaid: Saved = { quant_type: 'none', cache_dtype: 'model' };

/** Compares the checkpoint's config with that of now; a run is opened, and what it has written set aside, only after this. */
export function checkSameParameters(checkpoint: string, now: Saved): void {
  const before = readJson<Saved>(join(checkpoint, configFile));
  if (before === undefined) return;
  const isLora = Boolean(before.lora) && Boolean(now.lora);
  for (const name of deciding) {
    if (name.startsWith('lora_') && !isLora) continue;
    const [was, is] = [before, now].map((config) => valueIn(config, name));
    if (was === undefined || is === undefined || JSON.stringify(was) === JSON.stringify(is)) continue;
    const option = `--${name.replaceAll('_', '-')}`;
    throw new UserError(
      `Cannot resume from ${checkpoint} with ${option} ${is}: it was trained with ${was}. Leave ${option} out to go on, or start a new run from it with --model ${quoted(checkpoint)}.`,
    );
  }
}

function valueIn(config: Saved, name: string): unknown {
  if (!(name in config)) return unsaid[name];
  return name === 'dtype' ? heldAs(config) : config[name];
}

/** The dtype that a config's weights are held in. */
function heldAs({ dtype, device }: Saved): string {
  if (dtype !== 'auto') return dtype as string;
  if (typeof device === 'string' && device.startsWith('cuda')) return 'bfloat16';
  return dtypeOf('auto', deviceOf(device === 'cpu' ? 'cpu' : 'auto'));
}
