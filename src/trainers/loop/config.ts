/** Opens the run of a config, and gives the loop's options. */
import type { z } from 'zod';
import { tellFolder } from '../../dist/attempt.ts';
import { joinWorld } from '../../dist/world.ts';
import { savedConfig } from '../../runs/config/config.ts';
import type { ConfigSchema } from '../../runs/config/fields.ts';
import type { cadenceFields, optimizerFields, runFields } from '../../runs/config/training-fields.ts';
import type { ResolvedRun } from '../../runs/resume.ts';
import { createRun, followRun, type RunOptions } from '../../runs/run.ts';
import { bestOptions, type Judged } from './best.ts';
import type { LoopOptions } from './loop.ts';

export { evalName } from './best.ts';

type Shape = ReturnType<typeof runFields> & ReturnType<typeof optimizerFields> & ReturnType<typeof cadenceFields>;
export type TrainingConfig = z.output<z.ZodObject<Shape>>;

/** Opens the run of a resolved config: a new one, or the one that is resumed. Rank 0 writes it, the others follow. */
export async function startRun<S extends ConfigSchema>(
  command: string,
  schema: S,
  resolved: ResolvedRun<S>,
  options: Partial<RunOptions> = {},
) {
  const config = resolved.config as unknown as TrainingConfig;
  const { resume } = resolved;
  const world = await joinWorld();
  if (!world.isFirst) return followRun(await world.share(''), command);
  const run = await createRun({
    command,
    outputDir: config.outputDir,
    logDir: config.logDir,
    runName: config.runName,
    config: savedConfig(schema, resolved.config),
    seed: config.seed,
    reportTo: config.reportTo,
    wandbProject: config.wandbProject,
    ...(resume ? { resume: { run: resume.run, step: resume.step } } : {}),
    ...options,
  });
  await world.share(run.folder);
  await tellFolder({ path: run.folder, isNew: resume === undefined });
  return run;
}

export function loopOptions(config: TrainingConfig, totalSteps: number, judged: Judged): LoopOptions {
  const warmupSteps = config.warmupSteps ?? Math.round(config.warmupRatio * totalSteps);
  const best = bestOptions(config, judged);
  return {
    lr: config.lr,
    schedule: { kind: config.lrSchedule, warmupSteps },
    maxGradNorm: config.maxGradNorm,
    evalSteps: config.evalSteps,
    saveSteps: config.saveSteps,
    logSteps: config.logSteps,
    saveTotalLimit: config.saveTotalLimit,
    saveFinal: config.saveModel,
    ...(best === undefined ? {} : { best }),
  };
}
