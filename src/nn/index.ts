/** Modules, layers, optimisers and schedules. */
export * from './adamw.ts';
export * from './clipping.ts';
export * from './initialisers.ts';
export * from './layers.ts';
export * from './module.ts';
export { QuantisedMatrix, type QuantType, quantTypes } from './quantised.ts';
export * from './schedule.ts';
