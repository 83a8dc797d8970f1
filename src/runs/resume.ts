/**
 * From what a person typed to a config and, where a run goes on, its checkpoint: the config saved there is a layer below
 * the file and the command line.
 *
 *     const { config, resume } = await resolveRun(rewardSchema, schemaFlags(command, rewardSchema));
 */
import { join } from 'node:path';
import { type FoundCheckpoint, findCheckpoint } from './checkpoints.ts';
import { type ConfigSources, type ResolvedConfig, readConfigFile, resolveConfig } from './config/config.ts';
import { type ConfigSchema, camelCase, defaultValue } from './config/fields.ts';
import { readJson } from './run.ts';

export interface ResolvedRun<S extends ConfigSchema> extends ResolvedConfig<S> {
  resume?: FoundCheckpoint;
}

/** `config`, `resumeFrom` and `outputDir` are read here before the whole is checked. */
export async function resolveRun<S extends ConfigSchema>(
  schema: S,
  flags: Record<string, unknown>,
): Promise<ResolvedRun<S>> {
  const file = typeof flags.config === 'string' ? flags.config : undefined;
  const early = file === undefined ? {} : readConfigFile(file);
  const inFile = Object.fromEntries(Object.entries(early).map(([name, value]) => [camelCase(name), value]));
  const given = (name: string) => flags[name] ?? inFile[name];
  const from = given('resumeFrom') ?? given('resumeFromCheckpoint');
  const sources: ConfigSources = { flags, ...(file === undefined ? {} : { file }) };
  if (typeof from !== 'string') return resolveConfig(schema, sources);
  const outputDir = given('outputDir') ?? defaultValue(schema.shape.outputDir as S['shape'][string]);
  const resume = await findCheckpoint(from, { outputDir: String(outputDir ?? '.') });
  const checkpoint =
    readJson<Record<string, unknown>>(join(resume.path, 'train_config.json')) ??
    readJson(join(resume.run, 'config.json'));
  return { ...resolveConfig(schema, { ...sources, checkpoint }), resume };
}
