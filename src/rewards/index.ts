/** Anything that scores a response: a reward model, a verifier, a program of the user's, sums of them. */
export * from './module.ts';
export * from './reward-model.ts';
export * from './scorer.ts';
export * from './sum.ts';
export * from './verifier.ts';
