/**
 * Checkpoints are complete or absent. A checkpoint is written to a temporary folder beside its final place, synced,
 * given a manifest of sizes and checksums, and renamed. A crash at any moment leaves earlier checkpoints intact and at
 * most a stale temporary folder.
 *
 *     await saveCheckpoint(run, 'step-100', { step: 100, write: (dir) => model.save(dir), json: { 'trainer_state.json': state } });
 *     const { path, skipped } = await findCheckpoint('latest', { outputDir: './checkpoints/rm' });
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statfsSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { open } from 'node:fs/promises';
import { hostname } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { crc32 } from 'node:zlib';
import { AttuneError, UserError } from '../errors.ts';
import { makeFolder } from '../folder.ts';
import { quoted } from '../shell.ts';
import type { Tensor } from '../tensor/index.ts';
import { isAlive } from './lock.ts';

export interface CheckpointParts {
  /** Number of steps taken. */
  step: number;
  /** JSON files by name. */
  json?: Record<string, unknown>;
  /** Safetensors files by name. */
  tensors?: Record<string, Map<string, Tensor>>;
  /** Writes the model, the tokenizer and anything else into the folder. */
  write?: (folder: string) => void | Promise<void>;
}

export interface Manifest {
  format: 1;
  step: number;
  created: string;
  files: { path: string; size: number; crc32: number }[];
}

export class DiskFullError extends AttuneError {
  override name = 'DiskFullError';
}

const manifestName = 'manifest.json';
/** The trainer's state besides weights and optimiser. A folder without this file is a model and cannot be resumed. */
export const trainerStateName = 'trainer_state.json';
const stepName = /^(?:step|checkpoint)-(\d+)$/;
const stalePrefix = /^\.(tmp|old)-(.+)~(.*)~(\d+)~(\d+)$/;
let written = 0;

/** Writes `<folder>/<name>/` atomically, replacing an existing one. Returns its path. */
export async function saveCheckpoint(folder: string, name: string, parts: CheckpointParts): Promise<string> {
  makeFolder(folder);
  const target = join(folder, name);
  const suffix = `${name}~${hostname()}~${process.pid}~${written++}`;
  const temporary = join(folder, `.tmp-${suffix}`);
  try {
    mkdirSync(temporary);
    await parts.write?.(temporary);
    if (parts.tensors) {
      // Imported here so that listing checkpoints does not load the engine.
      const { writeSafetensors } = await import('../tensor/safetensors/safetensors.ts');
      for (const [file, tensors] of Object.entries(parts.tensors)) writeSafetensors(join(temporary, file), tensors);
    }
    for (const [file, value] of Object.entries(parts.json ?? {}))
      writeFileSync(join(temporary, file), `${JSON.stringify(value, null, 2)}\n`);
    await seal(temporary, parts.step);
    const old = join(folder, `.old-${suffix}`);
    if (existsSync(target)) renameSync(target, old);
    renameSync(temporary, target);
    await syncFolder(folder);
    rmSync(old, { recursive: true, force: true });
    return target;
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    throw isDiskFull(error) ? diskFull(folder, name) : error;
  }
}

/** Computes checksums, syncs every file, and writes the manifest that makes the folder a checkpoint. */
async function seal(folder: string, step: number): Promise<void> {
  const files: Manifest['files'] = [];
  for (const path of filesIn(folder)) files.push({ path, ...(await checksum(join(folder, path), true)) });
  const manifest: Manifest = { format: 1, step, created: new Date().toISOString(), files };
  await writeSynced(join(folder, manifestName), JSON.stringify(manifest, null, 2));
  for (const inside of new Set(files.map((file) => dirname(file.path)))) await syncFolder(join(folder, inside));
  await syncFolder(folder);
}

function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

const chunkBytes = 4 << 20;

async function checksum(path: string, sync: boolean): Promise<{ size: number; crc32: number }> {
  await using handle = await open(path, 'r');
  // No larger than the file: frequent small checkpoints would otherwise keep the garbage collector busy.
  const buffer = Buffer.allocUnsafe(Math.min(chunkBytes, (await handle.stat()).size + 1));
  let size = 0;
  let crc = 0;
  for (;;) {
    const { bytesRead } = await handle.read(buffer, 0, buffer.length);
    if (bytesRead === 0) break;
    crc = crc32(buffer.subarray(0, bytesRead), crc);
    size += bytesRead;
  }
  if (sync) await handle.sync();
  return { size, crc32: crc };
}

async function writeSynced(path: string, text: string): Promise<void> {
  await using handle = await open(path, 'wx');
  await handle.writeFile(text);
  await handle.sync();
}

async function syncFolder(folder: string): Promise<void> {
  await using handle = await open(folder, 'r');
  await handle.sync();
}

const isDiskFull = (error: unknown) =>
  ['ENOSPC', 'EDQUOT'].includes((error as NodeJS.ErrnoException).code ?? '') ||
  /no space left|quota exceeded/i.test(String(error));

function diskFull(folder: string, name: string): DiskFullError {
  const disk = statfsSync(folder);
  const last = listCheckpoints(folder).at(-1);
  const rest = last
    ? `The last good checkpoint, ${last.path}, is whole: free some space and resume from it.`
    : 'Nothing was saved before it.';
  const freeMiB = Math.floor((disk.bavail * disk.bsize) / 2 ** 20);
  return new DiskFullError(
    `The disk is full: ${join(folder, name)} could not be written (${freeMiB} MiB free). ${rest}`,
  );
}

export interface CheckpointEntry {
  path: string;
  name: string;
  step: number;
}

/** The step checkpoints of a run, by step. Judged by name only; `checkpointFault` tells whether one is complete. */
export function listCheckpoints(folder: string): CheckpointEntry[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder)
    .flatMap((name) => {
      const step = stepName.exec(name)?.[1];
      return step === undefined ? [] : [{ path: join(folder, name), name, step: Number(step) }];
    })
    .sort((a, b) => a.step - b.step);
}

export function readManifest(path: string): Manifest | undefined {
  try {
    const manifest = JSON.parse(readFileSync(join(path, manifestName), 'utf8')) as Manifest;
    return manifest.format === 1 && Array.isArray(manifest.files) ? manifest : undefined;
  } catch {
    return undefined;
  }
}

/** What is wrong with a checkpoint. undefined if every file exists with the right size and checksum. */
export async function checkpointFault(path: string): Promise<string | undefined> {
  if (!existsSync(path)) return 'it does not exist';
  const manifest = readManifest(path);
  if (!manifest) return `it has no readable ${manifestName}, so it was not written to its end`;
  for (const file of manifest.files) {
    const size = statSync(join(path, file.path), { throwIfNoEntry: false })?.size;
    if (size === undefined) return `${file.path} is missing`;
    if (size !== file.size) return `${file.path} has ${size} bytes instead of ${file.size}`;
  }
  for (const file of manifest.files) {
    if ((await checksum(join(path, file.path), false)).crc32 !== file.crc32)
      return `${file.path} does not match its checksum`;
  }
  return undefined;
}

export interface FoundCheckpoint {
  path: string;
  step: number;
  /** The run folder that contains it. */
  run: string;
  /** Newer checkpoints that were skipped because they are damaged. */
  skipped: { path: string; reason: string }[];
}

/**
 * The checkpoint named by `--resume-from`: a checkpoint, a run folder, or `latest` for the newest run under
 * `outputDir`.
 */
export async function findCheckpoint(target: string, options: { outputDir?: string } = {}): Promise<FoundCheckpoint> {
  if (target === 'latest') return findLatest(options.outputDir ?? '.');
  if (!existsSync(target)) throw new UserError(`Cannot resume: there is no ${target}.${listHint(dirname(target))}`);
  if (!statSync(target).isDirectory())
    throw new UserError(
      `Cannot resume from ${target}: that is a file. Name the run's folder, or a step-N folder in it.`,
    );
  if (existsSync(join(target, manifestName)) || stepName.test(basename(resolve(target)))) return oneCheckpoint(target);
  const found = await newestWhole(target);
  if ('path' in found) return found;
  throw new UserError(
    `Cannot resume from ${target}: ${found.skipped.length > 0 ? damaged(found.skipped) : 'it holds no checkpoints (step-N folders).'}`,
  );
}

async function oneCheckpoint(path: string): Promise<FoundCheckpoint> {
  const fault = await checkpointFault(path);
  const run = dirname(resolve(path));
  const step = readManifest(path)?.step ?? Number(stepName.exec(basename(resolve(path)))?.[1] ?? 0);
  if (fault === undefined) return { path, step, run, skipped: [] };
  const before = await newestWhole(run, (entry) => entry.step < step);
  const offer =
    'path' in before
      ? `The one before it is whole: --resume-from ${quoted(before.path)}`
      : 'There is no earlier whole one.';
  throw new UserError(`The checkpoint ${path} is damaged: ${fault}. ${offer}`);
}

async function newestWhole(
  run: string,
  accept: (entry: CheckpointEntry) => boolean = () => true,
): Promise<FoundCheckpoint | Pick<FoundCheckpoint, 'skipped'>> {
  const skipped: FoundCheckpoint['skipped'] = [];
  for (const entry of listCheckpoints(run).filter(accept).reverse()) {
    const reason = await checkpointFault(entry.path);
    if (reason === undefined) return { path: entry.path, step: entry.step, run: resolve(run), skipped };
    skipped.push({ path: entry.path, reason });
  }
  return { skipped };
}

async function findLatest(outputDir: string): Promise<FoundCheckpoint> {
  const folders = existsSync(outputDir) ? readdirSync(outputDir, { withFileTypes: true }) : [];
  const runs = folders
    .filter((entry) => entry.isDirectory() && !entry.name.startsWith('.') && !stepName.test(entry.name))
    .map((entry) => join(outputDir, entry.name));
  const newest = (run: string) => Math.max(0, ...listCheckpoints(run).map((entry) => statSync(entry.path).mtimeMs));
  const candidates = [outputDir, ...runs].map((run) => ({ run, time: newest(run) })).filter(({ time }) => time > 0);
  const skipped: FoundCheckpoint['skipped'] = [];
  for (const { run } of candidates.sort((a, b) => b.time - a.time)) {
    const found = await newestWhole(run);
    if ('path' in found) return { ...found, skipped: [...skipped, ...found.skipped] };
    skipped.push(...found.skipped);
  }
  throw new UserError(
    `Cannot resume from the latest run: ${skipped.length > 0 ? damaged(skipped) : `no run under ${outputDir} has a checkpoint.`}`,
  );
}

const damaged = (skipped: FoundCheckpoint['skipped']) =>
  `every checkpoint is damaged:\n${skipped.map(({ path, reason }) => `  ${path}: ${reason}`).join('\n')}`;

function listHint(folder: string): string {
  const there = listCheckpoints(folder).map((entry) => entry.name);
  return there.length > 0 ? ` There are: ${there.slice(-8).join(', ')}.` : '';
}

/** Deletes the oldest step checkpoints beyond `limit`. Those in `keep` (best, resumed from) stay and do not count. */
export function pruneCheckpoints(folder: string, limit: number | undefined, keep: readonly string[] = []): string[] {
  if (!limit || limit < 1) return [];
  const kept = new Set(keep.map((path) => resolve(path)));
  const candidates = listCheckpoints(folder).filter((entry) => !kept.has(resolve(entry.path)));
  const doomed = candidates.slice(0, Math.max(0, candidates.length - limit));
  for (const entry of doomed) {
    // Renamed first, so that a half-deleted folder is never taken for a checkpoint.
    const away = join(folder, `.old-${entry.name}~${hostname()}~${process.pid}~${written++}`);
    renameSync(entry.path, away);
    rmSync(away, { recursive: true, force: true });
  }
  return doomed.map((entry) => entry.path);
}

/** Sets aside checkpoints after a step: a run resumed there takes later steps again, perhaps differently. */
export function supersedeAfter(folder: string, step: number): string[] {
  return listCheckpoints(folder)
    .filter((entry) => entry.step > step)
    .map((entry) => {
      let aside = join(folder, `superseded-${entry.name}`);
      for (let i = 2; existsSync(aside); i++) aside = join(folder, `superseded-${entry.name}.${i}`);
      renameSync(entry.path, aside);
      return aside;
    });
}

/** Removes what crashed processes left behind, and restores a checkpoint that was being replaced. */
export function cleanStale(folder: string): string[] {
  if (!existsSync(folder)) return [];
  const removed: string[] = [];
  for (const name of readdirSync(folder)) {
    const match = stalePrefix.exec(name);
    if (!match || (match[3] === hostname() && isAlive(Number(match[4])))) continue;
    const path = join(folder, name);
    // On a shared disk another machine may still be writing, so its files are left for a day.
    if (match[3] !== hostname() && Date.now() - statSync(path).mtimeMs < 86_400_000) continue;
    const target = join(folder, match[2] ?? '');
    if (
      match[1] === 'old' &&
      !existsSync(target) &&
      existsSync(join(path, manifestName)) &&
      !stepName.test(match[2] ?? '')
    ) {
      renameSync(path, target);
    } else {
      rmSync(path, { recursive: true, force: true });
      removed.push(path);
    }
  }
  return removed;
}
