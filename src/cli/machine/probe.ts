/**
 * A separate program, started by `attune doctor`: loads the engine and prints its findings as JSON. An addon built for
 * a missing libtorch may crash its process; the doctor must survive that to report it.
 */
import { readFileSync } from 'node:fs';

export interface EngineFacts {
  libtorch: string;
  cuda: boolean;
  cards: { name: string; totalBytes: number; freeBytes: number }[];
  threads: number;
  /** at::show_config(): how this libtorch was built. */
  config: string;
  /** Linear algebra libraries mapped into the process, by their real paths. */
  libraries: string[];
}

export function mappedLibraries(maps: string): string[] {
  const paths = maps.split('\n').map((line) => line.split(/\s+/)[5] ?? '');
  return [...new Set(paths)].filter((path) => /\/lib(openblas|blas|mkl|nvpl_blas|armpl|blis)[^/]*\.so/.test(path));
}

if (import.meta.main) {
  const { engineInfo } = await import('../../tensor/index.ts');
  const { libtorch, cuda, devices, threads, config } = engineInfo();
  const cards = devices.filter((device) => 'freeBytes' in device);
  const libraries = mappedLibraries(readFileSync('/proc/self/maps', 'utf8'));
  const facts: EngineFacts = { libtorch, cuda, cards, threads, config, libraries };
  process.stdout.write(JSON.stringify(facts));
}
