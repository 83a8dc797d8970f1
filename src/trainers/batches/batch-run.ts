/** From a task on labelled text to the run that a trainer hands out. */
import type { Model } from '../../models/index.ts';
import { type ConfigSchema, type ResolvedRun, type Run, savedConfig } from '../../runs/index.ts';
import type { Tokenizer } from '../../text/index.ts';
import { loopOptions, startRun, type TrainingConfig } from '../loop/config.ts';
import { type TrainResult, trainLoop } from '../loop/loop.ts';
import { type TrainerOptions, TrainingRun } from '../loop/training-run.ts';
import type { BatchTask } from './batch-task.ts';
import type { TokenSets } from './token-sets.ts';

interface BatchRunParts<S extends ConfigSchema, Totals> {
  command: string;
  /** What the progress bar calls it. */
  label: string;
  schema: S;
  resolved: ResolvedRun<S>;
  config: TrainingConfig;
  options: TrainerOptions;
  task: BatchTask<Totals>;
  model: Model;
  tokenizer: Tokenizer;
  data: TokenSets;
  /** After the last step of a run that was not interrupted. */
  after?: (run: Run, result: TrainResult) => Promise<void>;
}

export async function startBatchRun<S extends ConfigSchema, Totals>(
  parts: BatchRunParts<S, Totals>,
): Promise<TrainingRun> {
  const { schema, resolved, task, model, tokenizer, options, after } = parts;
  const run = await startRun(parts.command, schema, resolved);
  return new TrainingRun({
    run,
    model,
    tokenizer,
    totalSteps: task.totalSteps,
    onStep: options.onStep,
    steps: trainLoop(task, {
      ...loopOptions(parts.config, task.totalSteps),
      run,
      config: savedConfig(schema, resolved.config),
      resumeFrom: resolved.resume?.path,
      signal: options.signal,
      progress: options.progress,
      label: parts.label,
    }),
    after: (result) => after?.(run, result),
    async close() {
      task.optimizer.dispose();
      await parts.data.close();
    },
  });
}
