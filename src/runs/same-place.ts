/** A resumed run keeps its folder, rollout database and TensorBoard folder. Another place or name is refused. */
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { quoted } from '../shell.ts';
import type { FoundCheckpoint } from './checkpoints.ts';
import { ConfigError, type Fault, type ResolvedConfig, shownPath } from './config/config.ts';
import type { ConfigSchema } from './config/fields.ts';
import { isGiven } from './config/unread.ts';
import { readJson } from './json-files.ts';
import type { ChangedOption } from './same-options.ts';

/** `--output-dir` may name the folder that holds the run, or the run's own folder. */
export function checkSamePlace<S extends ConfigSchema>(
  schema: S,
  { config, sources, changed = [] }: ResolvedConfig<S> & { changed?: readonly ChangedOption[] },
  { path, run }: FoundCheckpoint,
): void {
  const { outputDir, runName, rolloutsDir, logDir } = config as Record<string, string | undefined>;
  const isOwn = (place: string) => [run, dirname(run)].some((own) => real(own) === real(place));
  const elsewhere = (value: string) =>
    `has no effect here: a resumed run goes on in its own folder, ${run}, and this says ${value}. Leave it out, or start a new run from the checkpoint with --model ${quoted(path)} in place of --resume-from.`;
  const faults: Fault[] = [];
  const refuse = (name: string, value: string, message: string) => {
    const source = sources[name] ?? 'default';
    if (isGiven(schema, name, value, source)) faults.push({ path: shownPath([name], source), source, message });
  };
  if (outputDir !== undefined && !isOwn(outputDir)) refuse('outputDir', outputDir, elsewhere(outputDir));
  if (runName !== undefined && runName !== basename(run)) refuse('runName', runName, elsewhere(runName));
  const rollouts = rolloutsOf(run);
  if (rolloutsDir !== undefined && rollouts !== undefined) {
    const asked = join(rolloutsDir, basename(run), 'rollouts.db');
    const message = `would begin a second database: the run's rollouts are in ${rollouts}, and this says ${asked}. Leave it out.`;
    if (real(asked) !== real(rollouts)) refuse('rolloutsDir', rolloutsDir, message);
  }
  const logs = logsOf(run);
  if (logDir !== undefined && logs !== undefined) {
    const asked = logPlace(run, logDir);
    const message = `would split the run's curves: its TensorBoard files are in ${logs}, and this says ${asked}. Leave it out.`;
    // A renamed run continues under its new name, with or without the option.
    const change = changed.find(({ name }) => name === 'logDir');
    const unsaid = change === undefined ? asked : logPlace(run, change.was);
    if (![logs, unsaid].some((own) => real(own) === real(asked))) refuse('logDir', logDir, message);
  }
  if (faults.length > 0) throw new ConfigError(faults);
}

/** The run's existing rollout database; undefined if it has none. */
function rolloutsOf(run: string): string | undefined {
  const path = resolve(run, readJson<{ rollouts?: string }>(join(run, 'run.json'))?.rollouts ?? 'rollouts.db');
  return existsSync(path) ? path : undefined;
}

/** The run's existing TensorBoard folder; undefined if it has none. */
function logsOf(run: string): string | undefined {
  const { logDir } = readJson<{ logDir?: string }>(join(run, 'run.json')) ?? {};
  const path = logDir === undefined ? undefined : resolve(run, logDir);
  if (path === undefined || !existsSync(path)) return undefined;
  return readdirSync(path).some((name) => name.includes('tfevents')) ? path : undefined;
}

/** The folder of a run's TensorBoard files under this --log-dir. */
const logPlace = (run: string, logDir: unknown) =>
  typeof logDir === 'string' ? join(logDir, basename(run)) : join(run, 'tensorboard');

/** The path with links resolved. */
const real = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
