/** What tests of policy runs compare. */
import { openRun } from '../../src/runs/index.ts';
import type { TrainStep } from '../../src/trainers/loop/loop.ts';
import type { TrainingRun } from '../../src/trainers/loop/training-run.ts';

/** Trains to the end: the metrics of each step, and the run's folder. */
export async function trained(starting: Promise<TrainingRun>) {
  const steps: TrainStep[] = [];
  using run = await starting;
  for await (const step of run) steps.push(step);
  return { metrics: steps.map((step) => step.metrics), folder: run.folder };
}

/** All that a run keeps of its rollouts. */
export function rolloutsOf(run: string) {
  using reader = openRun(run).rollouts();
  const held = reader.evalQuery().map((row) => ({ ...row, episode: reader.evalEpisode(row.id) }));
  const of = (id: number) => ({ tokens: reader.tokens(id), parts: reader.parts(id), episode: reader.episode(id) });
  return { held, rows: reader.query().map((row) => ({ ...row, ...of(row.id) })) };
}

/** Metrics that do not depend on how long a step took. */
export const steady = (metrics: Record<string, number>[]) =>
  metrics.map((row) =>
    Object.fromEntries(Object.entries(row).filter(([name]) => !/time|seconds|per_second/.test(name))),
  );
