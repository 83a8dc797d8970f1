import { UserError } from '../../errors.ts';

/**
 * The number of threads that the environment asks for. OMP_NUM_THREADS belongs to other programs too, and may hold a
 * value that only they understand.
 */
export function askedThreads({ ATTUNE_THREADS: own, OMP_NUM_THREADS: shared }: NodeJS.ProcessEnv): number | undefined {
  const isCount = (text: string | undefined) => Number.isInteger(Number(text)) && Number(text) > 0;
  if (own && !isCount(own)) throw new UserError(`ATTUNE_THREADS=${own}: expected a whole number, 1 or more.`);
  return [own, shared].filter(isCount).map(Number)[0];
}
