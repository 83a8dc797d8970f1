/** Runs: configuration, folders, metrics, pictures, rollouts, checkpoints. Everything that other folders use of src/runs. */
export * from './checkpoints.ts';
export * from './config.ts';
export * from './dotenv.ts';
export * from './fields.ts';
export * from './metrics.ts';
export * from './open-run.ts';
export * from './plots.ts';
export * from './report.ts';
export * from './resume.ts';
export * from './rollouts.ts';
export * from './run.ts';
export * from './secrets.ts';
export { TensorBoardMetrics, TensorBoardWriter } from './tensorboard.ts';
export * from './training-fields.ts';
