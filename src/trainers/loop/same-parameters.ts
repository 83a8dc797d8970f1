/**
 * A resumed run must have the parameters that it began with, because its optimiser state belongs to them. It must also
 * sample from the same kind of cache, so that the log-probs of all steps are comparable.
 */
import { join } from 'node:path';
import { UserError } from '../../errors.ts';
import { deviceOf, dtypeOf } from '../../models/index.ts';
import { readJson } from '../../runs/json-files.ts';
import { quoted } from '../../shell.ts';
import { configFile } from './state.ts';

type Saved = Record<string, unknown>;

/**
 * Saved options that decide which parameters exist, and in which precision parameters and the sampler's cache are
 * stored.
 */
const deciding = [
  ...['dtype', 'lora', 'quant_type', 'lora_r', 'lora_alpha', 'lora_target_modules', 'lora_bias'],
  ...['use_rslora', 'use_dora'],
  'cache_dtype',
];
/** The meaning of an option that a config lacks. For options not listed here the model's family decides. */
const unsaid: Saved = { quant_type: 'none', cache_dtype: 'model' };

/**
 * Compares the checkpoint's config with the current one. Must come before the run is opened, which sets aside what it
 * wrote after the checkpoint.
 */
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

/** The dtype in which a config's weights are stored. */
function heldAs({ dtype, device }: Saved): string {
  if (dtype !== 'auto') return dtype as string;
  if (typeof device === 'string' && device.startsWith('cuda')) return 'bfloat16';
  return dtypeOf('auto', deviceOf(device === 'cpu' ? 'cpu' : 'auto'));
}
