/** Runs every `attune train` command: progress, evaluation lines, saving on Ctrl-C, the command to resume. */
import { join, relative } from 'node:path';
import type { Command } from 'commander';
import type { z } from 'zod';
import { isStartedAgain } from '../../dist/place.ts';
import { joinWorld } from '../../dist/world.ts';
import { UserError } from '../../errors.ts';
import { exitCodeOf } from '../../exit-codes.ts';
import { otherNames } from '../../rollouts/metrics.ts';
import {
  type ConfigSchema,
  checkNewRun,
  checkWandb,
  describe,
  kebabCase,
  type ResolvedRun,
  refusal,
  resolveRun,
  savedConfig,
} from '../../runs/index.ts';
import { type ChangedOption, shown as inWords } from '../../runs/same-options.ts';
import { quoted } from '../../shell.ts';
import { counted } from '../../spelling.ts';
import { bestOptions, type Judged } from '../../trainers/loop/best.ts';
import type { TrainingConfig } from '../../trainers/loop/config.ts';
import { NothingToDo } from '../../trainers/loop/finished.ts';
import type { TrainerOptions, TrainingRun } from '../../trainers/loop/training-run.ts';
import { consoleProgress, hasConsole, ifUnsaid } from '../terminal/console.ts';
import { type Interrupt, onInterrupt } from '../terminal/interrupt.ts';
import { logLines } from '../terminal/log-file.ts';
import { print, tell } from '../terminal/print.ts';
import { addSchemaOptions, schemaFlags } from './options.ts';
import { checkOutputFolder } from './outputs.ts';
import { launchedCommand } from './typed.ts';

export interface TrainVerb<S extends ConfigSchema> {
  name: string;
  description: string;
  schema: S;
  start: (resolved: ResolvedRun<S>, options: TrainerOptions) => Promise<TrainingRun>;
  /** The plan that a dry run shows below the config. */
  plan: (resolved: ResolvedRun<S>, options: TrainerOptions, refuse: Refuse) => Promise<string>;
  /** What evaluations measure. */
  judged: (config: z.output<S>) => Judged;
  examples?: readonly string[];
}

export function registerTrainVerb<S extends ConfigSchema>(train: Command, verb: TrainVerb<S>): Command {
  const command = addSchemaOptions(train.command(verb.name).description(verb.description), verb.schema);
  if (verb.examples)
    command.addHelpText('after', `\nExamples:\n${verb.examples.map((line) => `  ${line}`).join('\n')}`);
  command.action(async () => {
    const flags = { ...parentFlags(train, command, verb.schema), ...schemaFlags(command, verb.schema) };
    const resolved = await resolveRun(verb.schema, flags, `train ${verb.name}`);
    checkPlaces(resolved, verb.schema);
    const speaks = hasConsole();
    for (const { path, reason } of speaks ? (resolved.resume?.skipped ?? []) : [])
      tell(`Attention: the newer checkpoint ${shown(path)} is damaged and passed over: ${reason}.`);
    if (resolved.resume && speaks)
      tell(`going on after step ${resolved.resume.step}, from ${shown(resolved.resume.path)}${changes(resolved)}`);
    if ((resolved.config as { dryRun?: boolean }).dryRun) {
      print(describe(verb.schema, resolved));
      print(`\n${await planned(resolved, verb, { progress: consoleProgress() })}`);
      return;
    }
    process.exitCode = await runTraining(verb.name, (options) => verb.start(resolved, options));
  });
  return command;
}

type Refuse = (options: readonly string[], because: string) => void;

/** The plan that a dry run shows. What the run would refuse before its first step is refused here too. */
export async function planned<S extends ConfigSchema>(
  resolved: ResolvedRun<S>,
  { schema, judged, plan }: TrainVerb<S>,
  options: TrainerOptions = {},
): Promise<string> {
  const { config } = resolved;
  const run = config as unknown as TrainingConfig;
  bestOptions(run, judged(config));
  if (run.reportTo.includes('wandb')) await checkWandb();
  return plan(resolved, options, refusal(schema, resolved));
}

/** `attune train --dry-run reward …`: an option before the verb counts as one after it. */
function parentFlags(train: Command, command: Command, schema: ConfigSchema): Record<string, unknown> {
  const flags = schemaFlags(train, schema);
  const twice = Object.keys(flags).find((name) => command.getOptionValueSource(name) === 'cli');
  if (twice !== undefined)
    throw new UserError(`--${kebabCase(twice)} is given twice: before "${command.name()}" and after it.`);
  for (const { long, attributeName } of train.options.map((option) => ({
    long: option.long,
    attributeName: option.attributeName(),
  }))) {
    if (train.getOptionValueSource(attributeName) !== 'cli' || attributeName in schema.shape) continue;
    throw new UserError(
      `${long} belongs to pipelines (attune train --config pipeline.yaml), not to attune train ${command.name()}.`,
    );
  }
  return flags;
}

/** What a resumed run is given other than it had. */
function changes({ changed = [] }: { changed?: readonly ChangedOption[] }): string {
  const told = changed.map(({ name, was, is }) => `--${kebabCase(name)} ${inWords(is)} (was ${inWords(was)})`);
  return told.length === 0 ? '' : `, with ${told.join(', ')}`;
}

/** Finds what would stop the run at its start or first save, before anything is loaded. */
export function checkPlaces<S extends ConfigSchema>({ config, resume, command }: ResolvedRun<S>, schema: S): void {
  const { outputDir, logDir, rolloutsDir, runName } = config as Record<string, string | undefined>;
  // Rank 0 makes the run: for the others its folder may be there already.
  const again =
    command !== undefined && isStartedAgain(process.env) ? { command, config: savedConfig(schema, config) } : undefined;
  if (resume === undefined && hasConsole()) checkNewRun({ outputDir: outputDir ?? '.', runName, rolloutsDir, again });
  checkOutputFolder('--output-dir', resume?.run ?? outputDir);
  checkOutputFolder('--log-dir', logDir);
  checkOutputFolder('--rollouts-dir', rolloutsDir);
}

/** Ctrl-C and SIGTERM save a checkpoint and end the run; before it has begun there is nothing to save. */
export const saveOnInterrupt = (hasBegun: () => boolean = () => true): Interrupt =>
  onInterrupt(
    ifUnsaid((signal) =>
      tell(`${signal}: ${hasBegun() ? 'saving a checkpoint' : 'stopping'}; press Ctrl-C again to leave at once`),
    ),
  );

/** What begins, or undefined where it was stopped before. Any other error stays one. */
async function unlessStopped<Begun>(begin: Promise<Begun>, signal: AbortSignal): Promise<Begun | undefined> {
  try {
    return await begin;
  } catch (error) {
    if (signal.aborted && (error === signal.reason || (error as Error).name === 'AbortError')) return undefined;
    throw error;
  }
}

/** Meets the other ranks. Ctrl-C ends the process while some are missing: there is nothing to save, and they may never come. */
export async function meetOrLeave(signal: AbortSignal): Promise<void> {
  const leave = () => process.exit(exitCodeOf(signal));
  signal.addEventListener('abort', leave);
  try {
    await joinWorld();
  } finally {
    signal.removeEventListener('abort', leave);
  }
}

/** Runs to the end or until Ctrl-C; returns the exit code. */
export async function runTraining(
  name: string,
  start: (options: TrainerOptions) => Promise<TrainingRun>,
): Promise<number> {
  if (!hasConsole()) return followTraining(start);
  let hasBegun = false;
  using interrupt = saveOnInterrupt(() => hasBegun);
  const { signal } = interrupt;
  const progress = consoleProgress();
  using log = logLines();
  await meetOrLeave(signal);
  using run = await unlessStopped(start({ progress, signal }), signal);
  if (run === undefined) {
    tell('Stopped before the training began: nothing is saved, and the same command starts it.');
    return exitCodeOf(signal);
  }
  hasBegun = true;
  log.attach(join(run.folder, 'train.log'));
  tell(`run ${shown(run.folder)}, ${counted(run.totalSteps, 'step')}`);
  try {
    for await (const step of run) {
      if (step.evaluated) print(evaluationLine(step.step, step.metrics));
      if (step.skipped) tell(`step ${step.step}: a number was not finite, the update was left out`);
    }
  } catch (error) {
    if (error instanceof NothingToDo) {
      tell(error.message);
      return 0;
    }
    log.add(`failed: ${(error as Error).message}`);
    throw error;
  }
  const { result } = run;
  if (result === undefined || result.ended === 'interrupted') {
    tell(
      `Stopped after step ${result?.step ?? 0}. Go on with: ${launchedCommand()} train ${name} --resume-from ${quoted(shown(run.folder))}`,
    );
    return exitCodeOf(signal);
  }
  if (result.best) print(`best ${result.best.metric} ${short(result.best.value)} at step ${result.best.step}`);
  if (result.ended === 'early-stopping') print(`ended early after step ${result.step}: no better evaluation`);
  print(`saved ${shown(result.checkpoint ?? run.folder)}`);
  return 0;
}

/** The part of a rank that says nothing unless it fails. */
async function followTraining(start: (options: TrainerOptions) => Promise<TrainingRun>): Promise<number> {
  using interrupt = onInterrupt();
  const { signal } = interrupt;
  await meetOrLeave(signal);
  using run = await unlessStopped(start({ signal }), signal);
  if (run === undefined) return exitCodeOf(signal);
  await run.finish();
  return run.result?.ended === 'interrupted' ? exitCodeOf(signal) : 0;
}

/** The measures of an evaluation in one line; those with two names appear once. */
export function evaluationLine(step: number, metrics: Record<string, number>): string {
  const twins = Object.entries(otherNames).flatMap(([ours, other]) =>
    `eval/${ours}` in metrics ? [`eval/${other}`] : [],
  );
  const values = Object.entries(metrics)
    .filter(([name]) => name.startsWith('eval/') && !twins.includes(name))
    .map(([name, value]) => `${name.slice(5)} ${short(value)}`);
  return `step ${step}  held-out: ${values.join('  ')}`;
}

export const short = (value: number) => String(Number(value.toPrecision(4)));

/** The path relative to the current folder. */
export function shown(path: string): string {
  const near = relative(process.cwd(), path);
  return near.startsWith('..') || near === '' ? path : near;
}
