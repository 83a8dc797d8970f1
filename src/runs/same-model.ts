/** A resumed run must keep its model: adapters, and a KL to the start, have no meaning for another one. */
import { isSameModel } from '../hub/place.ts';
import { quoted } from '../shell.ts';
import type { FoundCheckpoint } from './checkpoints.ts';
import { ConfigError, type ResolvedConfig, shownPath } from './config/config.ts';
import type { ConfigSchema } from './config/fields.ts';

/**
 * `before`: the config that the checkpoint was trained with. A model trained from scratch (`from_config`) is whole in
 * the checkpoint.
 */
export async function checkSameModel<S extends ConfigSchema>(
  { config, sources }: ResolvedConfig<S>,
  before: { model?: unknown; from_config?: unknown },
  { path }: FoundCheckpoint,
): Promise<void> {
  const source = sources.model ?? 'default';
  const was = before.from_config === undefined ? before.model : undefined;
  const { model: is } = config as { model?: unknown };
  if (['default', 'the checkpoint'].includes(source) || typeof was !== 'string' || typeof is !== 'string') return;
  if (await isSameModel(was, is)) return;
  const message = `names other weights than the run's: it began from ${was}, and this says ${is}. Leave it out to go on, or start a new run from the checkpoint with --model ${quoted(path)} in place of --resume-from.`;
  throw new ConfigError([{ path: shownPath(['model'], source), source, message }]);
}
