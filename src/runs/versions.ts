/** The versions and seed of a run, for reproduction. */
import { execFileSync } from 'node:child_process';
import { readJson } from './json-files.ts';

export async function versions(seed?: number): Promise<Record<string, unknown>> {
  const own = readJson<{ version: string }>(new URL('../../package.json', import.meta.url));
  const { engineInfo } = await import('../tensor/index.ts');
  const engine = engineInfo();
  return {
    attune: own?.version ?? 'unknown',
    node: process.version,
    libtorch: engine.libtorch,
    devices: engine.devices.map((device) => device.name),
    threads: engine.threads,
    platform: `${process.platform}-${process.arch}`,
    git_commit: gitCommit(),
    seed,
  };
}

/** Commits by folder, read once per process: a later commit does not change the code already loaded. */
const commits = new Map<string, string | undefined>();

function gitCommit(folder = process.cwd()): string | undefined {
  if (!commits.has(folder)) commits.set(folder, askGit(folder));
  return commits.get(folder);
}

function askGit(folder: string): string | undefined {
  try {
    return execFileSync('git', ['rev-parse', 'HEAD'], {
      cwd: folder,
      encoding: 'utf8',
      timeout: 2000,
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  } catch {
    return undefined;
  }
}
