/**
 * Downloads one file into the cache. An interrupted download resumes where it stopped, size and SHA-256 are checked,
 * and only a complete file gets its final name.
 */
import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { mkdir, open, rename, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import { AttuneError, UserError } from '../errors.ts';
import { fileSize, type RepoCache, type RepoFile } from './cache.ts';
import {
  announceRetry,
  HubUnreachable,
  hubRequest,
  networkFault,
  pause,
  placeName,
  type RepoPlace,
  withinSilence,
} from './request.ts';
import type { HubSettings } from './settings.ts';

export interface Download {
  file: RepoFile;
  url: string;
  place: RepoPlace;
  /** Called with the bytes that arrived; negative if a damaged part is discarded. */
  onBytes: (bytes: number) => void;
}

/** Running downloads of this process by blob: a second caller waits for the first. */
const underWay = new Map<string, Promise<void>>();

export async function downloadBlob(download: Download, cache: RepoCache, settings: HubSettings): Promise<void> {
  const blob = cache.blob(download.file.etag);
  for (let running = underWay.get(blob); running !== undefined; running = underWay.get(blob)) {
    // If the first caller's download fails, this one starts its own.
    await running.catch(() => {});
  }
  const work = cache.locked(download.file.etag, settings.signal, () => fetchVerified(download, blob, settings));
  underWay.set(blob, work);
  try {
    await work;
  } finally {
    underWay.delete(blob);
  }
}

async function fetchVerified(download: Download, blob: string, settings: HubSettings): Promise<void> {
  const { file, onBytes } = download;
  const present = await fileSize(blob);
  if (present !== undefined && present === file.size) {
    onBytes(file.size);
    return;
  }
  const partial = `${blob}.attune.incomplete`;
  await mkdir(dirname(blob), { recursive: true });
  onBytes((await fileSize(partial)) ?? 0);
  for (let attempt = 0; ; attempt++) {
    await fetchAll(download, partial, settings);
    const fault = await faultOf(partial, file);
    if (fault === undefined) break;
    onBytes(-((await fileSize(partial)) ?? 0));
    await rm(partial, { force: true });
    // Try once more from the start: a damaged part from an earlier run may be the cause.
    if (attempt > 0)
      throw new AttuneError(`${placeName(download.place)} arrived damaged twice: ${fault}. Nothing of it was kept.`);
  }
  await rename(partial, blob);
}

async function faultOf(path: string, file: RepoFile): Promise<string | undefined> {
  const size = await fileSize(path);
  if (size !== file.size) return `it has ${size ?? 0} bytes where the hub lists ${file.size}`;
  if (file.sha256 === undefined) return undefined;
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) hash.update(chunk);
  const found = hash.digest('hex');
  return found === file.sha256 ? undefined : `its SHA-256 is ${found}, the hub lists ${file.sha256}`;
}

/** Requests the missing bytes until the file is as long as listed, or several attempts in a row bring none. */
async function fetchAll(download: Download, partial: string, settings: HubSettings): Promise<void> {
  const { file, place } = download;
  let fruitless = 0;
  for (;;) {
    const before = (await fileSize(partial)) ?? 0;
    if (before >= file.size && file.size > 0) return;
    const fault = await fetchRest(download, partial, before, settings);
    const after = (await fileSize(partial)) ?? 0;
    if (fault === undefined) return;
    fruitless = after > before ? 0 : fruitless + 1;
    if (fruitless > settings.retries) {
      throw new HubUnreachable(
        `${placeName(place)} broke off at byte ${after} of ${file.size}: ${fault}. Run again to go on from there.`,
      );
    }
    announceRetry(place, fault, settings);
    await pause(fruitless, settings);
  }
}

/** Requests the bytes from `start` on. Returns what interrupted it, or undefined if the response was complete. */
async function fetchRest(
  { file, url, place, onBytes }: Download,
  partial: string,
  start: number,
  settings: HubSettings,
): Promise<string | undefined> {
  // "identity": with compression the bytes received would not be the bytes of the file.
  const headers: Record<string, string> = { 'accept-encoding': 'identity' };
  if (start > 0) headers.range = `bytes=${start}-`;
  const response = await hubRequest(url, place, settings, { headers });
  const continues = response.status === 206 && rangeStart(response) === start;
  const handle = await open(partial, continues ? 'a' : 'w');
  if (!continues) onBytes(-start);
  let written = continues ? start : 0;
  const reader = response.status === 416 ? undefined : response.body?.getReader();
  try {
    for (;;) {
      const chunk = reader === undefined ? undefined : await withinSilence(reader.read(), settings);
      if (chunk === undefined || chunk.done) break;
      written += chunk.value.length;
      await handle.write(chunk.value);
      onBytes(chunk.value.length);
      // More bytes than listed: the file is damaged, so reading stops.
      if (written > file.size) break;
    }
  } catch (error) {
    settings.signal?.throwIfAborted();
    if ((error as NodeJS.ErrnoException).code === 'ENOSPC')
      throw new UserError(`No space is left for ${placeName(place)} (${file.size} bytes).`);
    if ((error as NodeJS.ErrnoException).syscall === 'write') throw error;
    return networkFault(error, settings);
  } finally {
    await handle.close();
    await reader?.cancel().catch(() => {});
  }
  if (reader === undefined && file.size > 0) return 'the answer was empty';
  // If the server sent as many bytes as it announced, a wrong length is the listing's fault, not the connection's.
  return written >= file.size || endedAsAnnounced(response, written, continues ? start : 0)
    ? undefined
    : 'the connection was cut';
}

function endedAsAnnounced(response: Response, written: number, start: number): boolean {
  const announced = response.headers.get('content-length');
  return announced === null ? false : written - start === Number(announced);
}

function rangeStart(response: Response): number | undefined {
  const match = /^bytes (\d+)-/.exec(response.headers.get('content-range') ?? '');
  return match === null ? undefined : Number(match[1]);
}
