/** `attune train --config pipeline.yaml`: one recipe on many models, one after another. */
import type { Command } from 'commander';
import { gpusInstalled, readPlace } from '../dist/place.ts';
import { UserError } from '../errors.ts';
import { exitCodeOf } from '../exit-codes.ts';
import { quoted } from '../shell.ts';
import { counted } from '../spelling.ts';
import { describePlan } from '../trainers/batches/plan.ts';
import { type PipelineConfig, readPipeline } from '../workflows/pipeline/config.ts';
import { type ModelOutcome, type PipelineOptions, trainPipeline } from '../workflows/pipeline/pipeline.ts';
import { type ModelPlan, nothingLeft, planPipeline } from '../workflows/pipeline/plan.ts';
import { launchCommand, launchDefaults } from './launch.ts';
import { checkOutputFolder } from './options/outputs.ts';
import { evaluationLine, meetOrLeave, saveOnInterrupt, short, shown } from './options/training.ts';
import { typedCommand } from './options/typed.ts';
import { consoleProgress, duration, hasConsole } from './terminal/console.ts';
import { print, tell } from './terminal/print.ts';
import { printSamples } from './train-preference.ts';

interface Flags {
  config?: string;
  modelIndex?: string;
  dryRun?: boolean;
  outputDir?: string;
  resume?: boolean;
}

export function registerPipeline(train: Command): void {
  train
    .option('--config <file>', 'a pipeline: one recipe on many models (see recipes/)')
    .option('--model-index <n>', 'train only this model of the pipeline, counted from 0')
    .option('--dry-run', 'report the faults of all models, steps and memory, and stop')
    .option('--output-dir <folder>', "in place of the pipeline's training.output_dir")
    .option('--resume', 'resume: finished models are skipped, the others resume from their newest checkpoint')
    .action(async (flags: Flags, command: Command) => {
      if (flags.config === undefined) return command.help({ error: true });
      checkOutputFolder('--output-dir', flags.outputDir);
      const { config } = readPipeline(flags.config, { outputDir: flags.outputDir });
      if (flags.dryRun) process.exitCode = await dryRun(config, flags);
      else if (config.gpu.useDdp && readPlace(process.env) === undefined)
        process.exitCode = await launch(config, flags);
      else process.exitCode = await run(config, flags);
    });
}

/** `gpu.use_ddp`: one process per device. A machine without GPUs has as many processes on its cores. */
async function launch({ gpu }: PipelineConfig, flags: Flags): Promise<number> {
  const { config, modelIndex, outputDir, resume } = flags;
  if (gpusInstalled() > 0) process.env.CUDA_VISIBLE_DEVICES = gpu.deviceIds.join(',');
  const command = ['train', '--config', config as string, ...(resume ? ['--resume'] : [])];
  if (modelIndex !== undefined) command.push('--model-index', modelIndex);
  if (outputDir !== undefined) command.push('--output-dir', outputDir);
  return launchCommand(command, {
    ...launchDefaults,
    nproc: String(Math.max(1, gpu.deviceIds.length)),
    // Each of them was named.
    oversubscribe: true,
  });
}

async function dryRun(config: PipelineConfig, { resume, modelIndex }: Flags): Promise<number> {
  const chosen = modelIndex === undefined ? config : { ...config, models: [modelAt(config, modelIndex)] };
  const plans = await planPipeline(chosen, { resume, progress: consoleProgress() });
  for (const plan of plans) print(`${planText(plan)}\n`);
  const faulty = plans.filter(({ faults }) => faults.length > 0);
  if (faulty.length === 0) return 0;
  print(`${faulty.length} of ${plans.length} models cannot be trained as they are.`);
  return 2;
}

function planText({ name, model, folder, faults, notes, training }: ModelPlan): string {
  return [
    `${name} (${model}) → ${shown(folder)}`,
    ...(training ? describePlan(training).split('\n') : []),
    ...notes.map((note) => `Note      ${note}`),
    ...faults.map((fault) => `FAULT     ${fault}`),
  ].join('\n  ');
}

function modelAt({ models }: PipelineConfig, text: string): PipelineConfig['models'][number] {
  const model = /^\d+$/.test(text) ? models[Number(text)] : undefined;
  if (model !== undefined) return model;
  const list = models.map(({ name }, i) => `${i} ${name}`).join(', ');
  throw new UserError(`--model-index ${text}: models are counted from 0 (${list}).`);
}

async function run(config: PipelineConfig, flags: Flags): Promise<number> {
  const speaks = hasConsole();
  using interrupt = saveOnInterrupt();
  await meetOrLeave(interrupt.signal);
  const modelIndex =
    flags.modelIndex === undefined ? undefined : config.models.indexOf(modelAt(config, flags.modelIndex));
  const outcomes = await trainPipeline(config, {
    modelIndex,
    resume: flags.resume,
    signal: interrupt.signal,
    ...(speaks ? told(config.logging.logLevel) : {}),
  });
  if (!speaks) return interrupt.signal.aborted ? exitCodeOf(interrupt.signal) : 0;
  if (outcomes.length > 1 || config.models.length === 1) print(`\n${summary(outcomes)}`);
  if (interrupt.signal.aborted) {
    tell(`Stopped. Go on with: ${resumeCommand(flags)}`);
    return exitCodeOf(interrupt.signal);
  }
  return outcomes.some(({ status }) => status === 'failed') ? 1 : 0;
}

/** The command that resumes this pipeline. */
export function resumeCommand({ config = '', modelIndex, outputDir }: Flags): string {
  const more = [
    ...(modelIndex === undefined ? [] : ['--model-index', modelIndex]),
    ...(outputDir === undefined ? [] : ['--output-dir', outputDir]),
  ];
  return [typedCommand(), ...['train', '--config', config, ...more, '--resume'].map(quoted)].join(' ');
}

type LogLevel = PipelineConfig['logging']['logLevel'];

/** What is printed during training, by `logging.log_level`. */
function told(level: LogLevel): Partial<PipelineOptions> {
  const quiet: Partial<PipelineOptions> = {
    onOutcome: ({ name, status, error }) => {
      if (status === 'failed') tell(`${name} failed: ${error?.message}`);
      if (status === 'skipped') tell(`${name}: ${nothingLeft}`);
    },
  };
  if (level === 'error' || level === 'warning') return quiet;
  return {
    progress: consoleProgress(),
    onModel: ({ name }, { folder, totalSteps, resumedAt }) =>
      print(`${name} → ${shown(folder)}, ${counted(totalSteps, 'step')}${resumedAt ? `, from step ${resumedAt}` : ''}`),
    onStep: ({ name }, step) => {
      if (step.evaluated) print(`${name}  ${evaluationLine(step.step, step.metrics)}`);
      else if (level === 'debug') print(`${name}  step ${step.step}  loss ${short(step.metrics['train/loss'] ?? 0)}`);
      if (step.skipped) tell(`${name}  step ${step.step}: a number was not finite, the update was left out`);
    },
    onSamples: (_, samples) => printSamples(samples),
    ...quiet,
  };
}

function summary(outcomes: readonly ModelOutcome[]): string {
  const width = Math.max(...outcomes.map(({ name }) => name.length));
  return outcomes
    .map(({ name, status, step, best, checkpoint, seconds, error }) => {
      const facts = [
        status.padEnd(14),
        ...(step === undefined ? [] : [counted(step, 'step')]),
        ...(best ? [`best ${best.metric} ${short(best.value)} at step ${best.step}`] : []),
        duration(seconds),
        ...(checkpoint ? [shown(checkpoint)] : []),
        ...(error ? [error.message.split('\n')[0] ?? ''] : []),
      ];
      return `${name.padEnd(width)}  ${facts.join('  ')}`;
    })
    .join('\n');
}
