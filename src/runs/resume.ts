/**
 * Resolves the config of a command and, for a resumed run, its checkpoint. The checkpoint's saved config has lower
 * precedence than the config file and the command line.
 *
 *     const { config, resume } = await resolveRun(rewardSchema, schemaFlags(command, rewardSchema));
 */
import { existsSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { UserError } from '../errors.ts';
import { quoted } from '../shell.ts';
import { type FoundCheckpoint, findCheckpoint, trainerStateName } from './checkpoints.ts';
import { type ConfigSources, type ResolvedConfig, readConfigFile, resolveConfig } from './config/config.ts';
import { type ConfigSchema, camelCase, defaultValue } from './config/fields.ts';
import { refuseUnread } from './config/unread.ts';
import { readJson } from './json-files.ts';
import { heldError, lockHolder } from './lock.ts';
import { checkSameModel } from './same-model.ts';
import { type ChangedOption, changedOptions, checkSameOptions } from './same-options.ts';
import { checkSamePlace } from './same-place.ts';

export interface ResolvedRun<S extends ConfigSchema> extends ResolvedConfig<S> {
  resume?: FoundCheckpoint;
  /** The options whose values differ from the resumed run's. */
  changed?: ChangedOption[];
  /** The command that starts the run; undefined for a workflow. */
  command?: string;
}

/**
 * `config`, `resumeFrom` and `outputDir` are read before the rest is validated. `command` is the one that must have
 * started the run. A workflow derives these options from its own and gives no command; its options are not checked
 * against the schema's rules. Nothing is written, so a run that cannot be resumed stays unchanged.
 */
export async function resolveRun<S extends ConfigSchema>(
  schema: S,
  flags: Record<string, unknown>,
  command?: string,
): Promise<ResolvedRun<S>> {
  const resolved = await resolvedWith(schema, flags, command);
  if (command === undefined) return resolved;
  if (resolved.resume) checkSamePlace(schema, resolved, resolved.resume);
  refuseUnread(schema, resolved);
  return { ...resolved, command };
}

async function resolvedWith<S extends ConfigSchema>(
  schema: S,
  flags: Record<string, unknown>,
  command: string | undefined,
): Promise<ResolvedRun<S>> {
  const file = typeof flags.config === 'string' ? flags.config : undefined;
  const early = file === undefined ? {} : readConfigFile(file);
  const inFile = Object.fromEntries(Object.entries(early).map(([name, value]) => [camelCase(name), value]));
  const given = (name: string) => flags[name] ?? inFile[name];
  const from = given('resumeFrom') ?? given('resumeFromCheckpoint');
  const sources: ConfigSources = { flags, ...(file === undefined ? {} : { file }) };
  if (typeof from !== 'string') return resolveConfig(schema, sources);
  const outputDir = given('outputDir') ?? defaultValue(schema.shape.outputDir as S['shape'][string]);
  const resume = await findCheckpoint(from, { outputDir: String(outputDir ?? '.') }).catch((error) => {
    // A run that is being written may have no checkpoint yet.
    const holder = isRunFolder(from) ? lockHolder(from) : undefined;
    throw holder?.isLive ? heldError(from, holder) : error;
  });
  checkResumable(resume, command);
  const checkpoint = checkpointConfig(resume);
  const resolved = resolveConfig(schema, { ...sources, checkpoint });
  await checkSameModel(resolved, checkpoint ?? {}, resume);
  const changed = changedOptions(schema, resolved, checkpoint ?? {});
  await checkSameOptions(schema, changed, checkpoint ?? {}, resume);
  return { ...resolved, resume, changed };
}

const isRunFolder = (path: string) => existsSync(join(path, 'run.json'));

function checkResumable({ path, run }: FoundCheckpoint, command: string | undefined): void {
  const made = readJson<{ command?: string }>(join(run, 'run.json'))?.command;
  if (command !== undefined && made !== undefined && made !== command) {
    const goOn =
      made === 'train pipeline'
        ? 'attune train --config <the YAML file of its pipeline> --resume'
        : `attune ${made} --resume-from ${quoted(path)}`;
    throw new UserError(
      `Cannot resume from ${path}: that is a run of attune ${made}, not of attune ${command}. Go on with: ${goOn}`,
    );
  }
  const holder = lockHolder(run);
  if (holder?.isLive) throw heldError(run, holder);
  if (existsSync(join(path, trainerStateName))) return;
  throw new UserError(
    `Cannot resume from ${path}: it holds a model, but neither optimiser nor trainer state. Start a new run from it with --model ${quoted(path)}, or resume from a step-N folder of ${run}.`,
  );
}

/** The saved config that a checkpoint was trained with. */
export function checkpointConfig({
  path,
  run,
}: Pick<FoundCheckpoint, 'path' | 'run'>): Record<string, unknown> | undefined {
  return fromWhereItBegan(
    readJson<Record<string, unknown>>(join(path, 'train_config.json')) ??
      readJson<Record<string, unknown>>(join(run, 'config.json')),
    cwdOf(join(path, trainerStateName)) ?? cwdOf(join(run, 'run.json')),
  );
}

/**
 * Checkpoints store the folder that their config's paths refer to. For older ones, run.json has that of the last
 * resumption.
 */
const cwdOf = (file: string) => readJson<{ cwd?: string }>(file)?.cwd;

/** Fields that may name a file or folder, in their saved spelling. */
const inputs = /^(model|tokenizer|from_config|dataset|eval_dataset|(.*_)?(model|module|path|teacher))$/;
const places = /^(output|log|rollouts)_dir$/;

/** Resolves the relative paths of a saved config against the folder in which the run was started. */
function fromWhereItBegan(
  config: Record<string, unknown> | undefined,
  cwd: string | undefined,
): Record<string, unknown> | undefined {
  if (config === undefined || cwd === undefined || resolve(cwd) === process.cwd()) return config;
  const moved = Object.entries(config).map(([name, value]) => {
    if (typeof value !== 'string') return [name, value];
    const there = resolve(cwd, value);
    return [name, places.test(name) || (inputs.test(name) && existsSync(there)) ? there : value];
  });
  return Object.fromEntries(moved);
}
