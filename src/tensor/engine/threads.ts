import { UserError } from '../../errors.ts';

/** The threads that the environment asks for. OMP_NUM_THREADS is others' variable too, and may hold what only they read. */
export function askedThreads({ ATTUNE_THREADS: own, OMP_NUM_THREADS: shared }: NodeJS.ProcessEnv): number | undefined {
  const isCount = (text: string | undefined) => Number.isInteger(Number(text)) && Number(text) > 0;
  if (own && !isCount(own)) throw new UserError(`ATTUNE_THREADS=${own}: expected a whole number, 1 or more.`);
  return [own, shared].filter(isCount).map(Number)[0];
}
