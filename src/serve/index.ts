/** The OpenAI-compatible server: models by name, each with a continuous-batching sampler. */
export { Registry, type RegistryOptions, type ServedModel } from './registry.ts';
export { type RequestEntry, type RunningServer, type ServeOptions, serve } from './server.ts';
