/** The web studio's server. */
export type { Above, Launcher, TrainVerb } from './commands/verbs.ts';
export { type RunningStudio, type ServerOptions, startStudio } from './server.ts';
