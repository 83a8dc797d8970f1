/**
 * The addon as the command line sees it. Building it is the launcher's business (bin/attune.mjs, in plain JavaScript, since
 * it must run before anything is compiled), which hands its builder over here.
 */
import { existsSync, readFileSync } from 'node:fs';
import { tell } from '../terminal/print.ts';

export interface Addon {
  path: string;
  /** The folder of the libtorch it was built against, that of its libraries, its version and where it came from. */
  libtorch: string;
  lib: string;
  version: string;
  source: 'environment' | 'python' | 'system' | 'cache';
  libtorchHasCuda: boolean;
  /** Whether the addon itself was built with CUDA, which takes the toolkit's headers. */
  cuda: boolean;
  /** Whether the CUDA kernels of native/*.cu are inside. */
  kernels: boolean;
  /** There are such kernels, and no nvcc to compile them with. */
  kernelsLeftOut: boolean;
}

export type EnginePreparer = (log: (line: string) => void) => Promise<Addon>;

let preparer: EnginePreparer | undefined;

export function setEnginePreparer(prepare: EnginePreparer): void {
  preparer = prepare;
}

/**
 * Builds the addon if there is none for this machine yet, and points the engine at it. An addon that the environment names
 * is used as it is; what it was built against is known when its record lies beside it.
 */
export async function prepareEngine(): Promise<Addon | undefined> {
  const given = process.env.ATTUNE_ADDON;
  if (given) {
    const record = given.replace(/\.node$/, '.json');
    return existsSync(record) ? (JSON.parse(readFileSync(record, 'utf8')) as Addon) : undefined;
  }
  const addon = await preparer?.((line) => tell(line));
  if (addon) process.env.ATTUNE_ADDON = addon.path;
  return addon;
}
