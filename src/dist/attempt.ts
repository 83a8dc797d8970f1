/**
 * Ranks that are restarted after a failure continue the run of the previous attempt. Rank 0 reports the run's folder to
 * `attune launch`, which remembers it and changes the command. torchrun starts the same command again, but its store
 * outlives the ranks: the folder is left there, and rank 0 of the next attempt decides how the command continues.
 */
import { type RunFolder, report } from './beat.ts';
import { type Place, readPlace, startSeconds } from './place.ts';
import { SharedStore } from './store.ts';

type Environment = Readonly<Record<string, string | undefined>>;

const folderKey = 'attune/folder';
const commandKey = 'attune/command';

/** A store that all attempts see; the keys of one attempt have its prefix. */
const ofAllAttempts = (place: Place, env: Environment) => SharedStore.ofAgent(place, '', 1000 * startSeconds(env));

/**
 * Reports the run's folder to whoever may restart the ranks: the first rank of each machine tells its launcher, rank 0
 * tells torchrun.
 */
export async function tellFolder(folder: RunFolder, env: Environment = process.env): Promise<void> {
  const place = readPlace(env);
  if ((place?.localRank ?? 0) === 0) report({ folder });
  if (!place?.hasStore || place.rank !== 0) return;
  const store = await ofAllAttempts(place, env);
  const before = await readFolder(store);
  // Not new to an attempt that continues in it, but new to this launch.
  if (before?.path !== folder.path) await store.set(folderKey, JSON.stringify(folder));
}

/**
 * The command of an attempt that torchrun has started. `next` derives it from the previous attempts' folder, on rank 0
 * alone, before any other rank looks at the folder. On the first attempt it is the command itself.
 */
export async function commandOfAttempt(
  command: readonly string[],
  next: (folder: RunFolder | undefined) => string[],
  env: Environment = process.env,
): Promise<string[]> {
  const place = readPlace(env);
  if (!place?.hasStore || place.prefix === '') return [...command];
  const timeoutMs = 1000 * startSeconds(env);
  const store = await SharedStore.ofAgent(place, place.prefix, timeoutMs);
  if (place.rank === 0) {
    const folder = await readFolder(await ofAllAttempts(place, env));
    await store.set(commandKey, JSON.stringify(next(folder)));
  }
  return JSON.parse(await store.wait(commandKey, { timeoutMs, what: 'rank 0' })) as string[];
}

async function readFolder(store: SharedStore): Promise<RunFolder | undefined> {
  const text = await store.get(folderKey);
  return text === undefined ? undefined : (JSON.parse(text) as RunFolder);
}
