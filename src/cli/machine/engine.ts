/**
 * The addon, for the command line. The launcher builds it (bin/attune.mjs, in plain JavaScript because it runs before
 * anything is compiled) and passes its build function to this file.
 */
import { existsSync, readFileSync } from 'node:fs';
import { UserError } from '../../errors.ts';
import { tell } from '../terminal/print.ts';

export interface Addon {
  path: string;
  /** The folder of the libtorch it was built against, that of its libraries, its version and where it came from. */
  libtorch: string;
  lib: string;
  version: string;
  source: 'environment' | 'python' | 'system' | 'cache';
  libtorchHasCuda: boolean;
  /** Whether the addon was built with CUDA, which needs the toolkit's headers. */
  cuda: boolean;
  /** Whether it has the CUDA kernels of native/. */
  kernels: boolean;
  /** There are CUDA kernels, but no nvcc to compile them. */
  kernelsLeftOut: boolean;
}

export type EnginePreparer = (log: (line: string) => void) => Promise<Addon>;

let preparer: EnginePreparer | undefined;

export function setEnginePreparer(prepare: EnginePreparer): void {
  preparer = prepare;
}

/**
 * Builds the addon if there is none for this machine yet, and points the engine at it. An addon named by ATTUNE_ADDON
 * is used as it is; a record beside it says what it was built against.
 */
export async function prepareEngine(): Promise<Addon | undefined> {
  const given = process.env.ATTUNE_ADDON;
  if (given) {
    if (!given.endsWith('.node') || !existsSync(given))
      throw new UserError(
        `ATTUNE_ADDON=${given}: there is no such addon, a .node file. Unset it to use the one that attune builds.`,
      );
    const record = given.replace(/\.node$/, '.json');
    return existsSync(record) ? (JSON.parse(readFileSync(record, 'utf8')) as Addon) : undefined;
  }
  const addon = await preparer?.((line) => tell(line));
  if (addon) process.env.ATTUNE_ADDON = addon.path;
  return addon;
}
