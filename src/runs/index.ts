/**
 * Runs: configuration, folders, metrics, plots, rollout store, checkpoints. Other folders import src/runs through this
 * file.
 */
export * from './checkpoints.ts';
export * from './config/config.ts';
export * from './config/dotenv.ts';
export * from './config/fields.ts';
export * from './config/secrets.ts';
export * from './config/training-fields.ts';
export * from './config/unread.ts';
export * from './json-files.ts';
export * from './lock.ts';
export * from './metrics/columns.ts';
export * from './metrics/metrics.ts';
export { TensorBoardMetrics, TensorBoardWriter } from './metrics/tensorboard.ts';
export { checkWandb } from './metrics/wandb.ts';
export * from './open-run.ts';
export * from './plots/plots.ts';
export * from './plots/report.ts';
export * from './resume.ts';
export * from './run.ts';
export * from './run-folder.ts';
export * from './store/rollouts.ts';
export * from './versions.ts';
