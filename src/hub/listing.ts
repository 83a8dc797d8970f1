/**
 * The files of a repository at one commit, from the hub's tree API, page by page. Everything in a response is checked before
 * it is used: a path becomes a path on this disk, a size bounds a download, and the next page is requested with the user's
 * token.
 */
import { isAbsolute, normalize } from 'node:path';
import { AttuneError } from '../errors.ts';
import type { RepoFile } from './cache.ts';
import { hubRequest, placeName, type RepoPlace, readJsonBody } from './request.ts';
import type { HubSettings } from './settings.ts';

// The largest repositories have some 100,000 files, a thousand to a page.
const MOST_PAGES = 500;

export async function commitOf(place: RepoPlace, settings: HubSettings): Promise<string> {
  const url = `${settings.endpoint}/api/${place.type}s/${place.repo}/revision/${encodeURIComponent(place.revision)}`;
  const answer = await readJsonBody(await hubRequest(url, place, settings), place, settings);
  const commit = isObject(answer) ? answer.sha : undefined;
  if (typeof commit === 'string' && /^[A-Za-z0-9][\w-]{0,127}$/.test(commit)) return commit;
  throw new AttuneError(
    `${settings.endpoint} did not say which commit ${placeName(place)} is; is it a Hugging Face hub?`,
  );
}

export async function listTree(place: RepoPlace, commit: string, settings: HubSettings): Promise<RepoFile[]> {
  const files: RepoFile[] = [];
  const api = `${settings.endpoint}/api/${place.type}s/${place.repo}/tree/${commit}?recursive=true&expand=false`;
  let url: string | undefined = api;
  for (let page = 0; url !== undefined; page++) {
    if (page === MOST_PAGES) throw new AttuneError(`The listing of ${placeName(place)} has no end.`);
    const response = await hubRequest(url, place, settings, { headers: { accept: 'application/json' } });
    const entries = await readJsonBody(response, place, settings);
    if (!Array.isArray(entries)) throw oddListing(place, 'it is not a list');
    for (const entry of entries) {
      if (!isObject(entry)) throw oddListing(place, 'an entry is not an object');
      if (entry.type === 'file') files.push(checkedFile(entry, place));
    }
    url = nextPage(response, api, place);
  }
  return files;
}

/** The address of the next page. It must be on the hub, because the token is sent with the request. */
function nextPage(response: Response, from: string, place: RepoPlace): string | undefined {
  const next = /<([^>]*)>\s*;[^,]*\brel="?next"?/i.exec(response.headers.get('link') ?? '')?.[1];
  if (next === undefined) return undefined;
  const url = URL.canParse(next, from) ? new URL(next, from) : undefined;
  if (url?.origin === new URL(from).origin) return url.href;
  throw oddListing(place, `its next page is on another host (${url?.host ?? 'no address'}), which was not asked`);
}

function checkedFile(entry: Record<string, unknown>, place: RepoPlace): RepoFile {
  const lfs = isObject(entry.lfs) ? entry.lfs : undefined;
  const etag = lfs?.oid ?? entry.oid;
  const size = lfs?.size ?? entry.size;
  const path = checkedPath(entry.path, place);
  if (typeof etag !== 'string' || !/^[\w-]{1,128}$/.test(etag)) throw oddListing(place, `${path} has no usable hash`);
  if (!Number.isSafeInteger(size) || (size as number) < 0) throw oddListing(place, `${path} has no usable size`);
  const sha256 = lfs !== undefined && /^[0-9a-f]{64}$/.test(etag) ? etag : undefined;
  return { path, size: size as number, etag, sha256 };
}

function checkedPath(path: unknown, place: RepoPlace): string {
  const clean =
    typeof path === 'string' &&
    path !== '' &&
    !isAbsolute(path) &&
    !path.includes('\\') &&
    !path.includes('\0') &&
    normalize(path) === path &&
    !path.startsWith('..');
  if (clean) return path;
  throw oddListing(place, `it holds an unsafe or empty file name: ${JSON.stringify(path)}`);
}

function oddListing(place: RepoPlace, problem: string): AttuneError {
  return new AttuneError(`The listing of ${placeName(place)} cannot be used: ${problem}.`);
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
