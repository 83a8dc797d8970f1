/** A resumed run goes on in its own folder. Another place or name that is asked for would not be used: it is refused. */
import { existsSync, realpathSync } from 'node:fs';
import { basename, dirname, resolve } from 'node:path';
import type { FoundCheckpoint } from './checkpoints.ts';
import { ConfigError, type Fault, type ResolvedConfig, shownPath } from './config/config.ts';
import type { ConfigSchema } from './config/fields.ts';
import { isGiven } from './config/unread.ts';

/** `--output-dir` may name the folder that holds the run, or the run's own. */
export function checkSamePlace<S extends ConfigSchema>(
  schema: S,
  { config, sources }: ResolvedConfig<S>,
  { path, run }: FoundCheckpoint,
): void {
  const { outputDir, runName } = config as { outputDir?: string; runName?: string };
  const isElsewhere = {
    outputDir: outputDir !== undefined && ![run, dirname(run)].some((own) => real(own) === real(outputDir)),
    runName: runName !== undefined && runName !== basename(run),
  };
  const faults = (['outputDir', 'runName'] as const).flatMap((name): Fault[] => {
    const value = name === 'outputDir' ? outputDir : runName;
    const source = sources[name] ?? 'default';
    if (!isElsewhere[name] || !isGiven(schema, name, value, source)) return [];
    const message = `has no effect here: a resumed run goes on in its own folder, ${run}, and this says ${value}. Leave it out, or start a new run from the checkpoint with --model ${path} in place of --resume-from.`;
    return [{ path: shownPath([name], source), source, message }];
  });
  if (faults.length > 0) throw new ConfigError(faults);
}

/** The place that a path means, links followed. */
const real = (path: string) => (existsSync(path) ? realpathSync(path) : resolve(path));
