/** Opens the run of a config, and makes the loop's options. */
import type { z } from 'zod';
import { tellFolder } from '../../dist/attempt.ts';
import { WorldError } from '../../dist/failure.ts';
import { isStartedAgain } from '../../dist/place.ts';
import { joinWorld } from '../../dist/world.ts';
import { savedConfig } from '../../runs/config/config.ts';
import type { ConfigSchema } from '../../runs/config/fields.ts';
import type { cadenceFields, optimizerFields, runFields } from '../../runs/config/training-fields.ts';
import type { ResolvedRun } from '../../runs/resume.ts';
import { createRun, followRun, type RunOptions } from '../../runs/run.ts';
import { bestOptions, type Judged } from './best.ts';
import type { LoopOptions } from './loop.ts';
import { checkSameParameters } from './same-parameters.ts';

export { evalName } from './best.ts';

type Shape = ReturnType<typeof runFields> & ReturnType<typeof optimizerFields> & ReturnType<typeof cadenceFields>;
export type TrainingConfig = z.output<z.ZodObject<Shape>>;

/** Opens the run of a resolved config, new or resumed. Rank 0 writes it and the others follow. */
export async function startRun<S extends ConfigSchema>(
  command: string,
  schema: S,
  resolved: ResolvedRun<S>,
  options: Partial<RunOptions> = {},
) {
  const config = resolved.config as unknown as TrainingConfig;
  const { resume } = resolved;
  if (resume) checkSameParameters(resume.path, savedConfig(schema, resolved.config));
  const world = await joinWorld();
  if (!world.isFirst) return followRun(await followed(await world.share<RunStart>(nowhere), resume?.step), command);
  const run = await createRun({
    command,
    outputDir: config.outputDir,
    logDir: config.logDir,
    runName: config.runName,
    config: savedConfig(schema, resolved.config),
    seed: config.seed,
    reportTo: config.reportTo,
    wandbProject: config.wandbProject,
    isAgain: isStartedAgain(process.env),
    ...(resume ? { resume: { run: resume.run, step: resume.step } } : {}),
    ...options,
  });
  await world.share<RunStart>({ folder: run.folder, step: resume?.step });
  await tellFolder({ path: run.folder, isNew: resume === undefined });
  return run;
}

/** Where rank 0 starts: its run folder, and the step of the checkpoint it resumes. */
interface RunStart {
  folder: string;
  step: number | undefined;
}
const nowhere: RunStart = { folder: '', step: undefined };

/**
 * The folder of rank 0's run. Every rank looks for the newest checkpoint itself, so one that is still being written may
 * be visible to some ranks only.
 */
async function followed({ folder, step }: RunStart, own: number | undefined): Promise<string> {
  if (own !== step)
    throw new WorldError(
      `This rank begins ${placeOf(own)}, and rank 0 ${placeOf(step)}: all must see the same checkpoints (is ${folder} on a disk that all machines share?) and be given the same --resume-from.`,
    );
  await tellFolder({ path: folder, isNew: false });
  return folder;
}

const placeOf = (step: number | undefined) => (step === undefined ? 'anew' : `after step ${step}`);

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
