/** Anything that scores a response: a reward model, a verifier, a program of the user's, sums of them. */
export * from './scorer.ts';
