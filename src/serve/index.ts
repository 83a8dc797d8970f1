/** The OpenAI-compatible server: models by name, over one continuous-batching sampler each. */
export { Registry, type RegistryOptions, type ServedModel } from './registry.ts';
export { type RequestEntry, type RunningServer, type ServeOptions, serve } from './server.ts';
