/**
 * Datasets on the hub: finds the files of a repository that make up a split and subset. The caller's hub client
 * downloads them.
 */
import { UserError } from '../../errors.ts';
import { dataFiles, filesOfSplit, filesOfSubset, isMistypedPath, knownKinds, missingPath } from './files.ts';

/** What `openDataset` needs of a hub client. */
export interface DatasetHub {
  /** All paths of a dataset repository. */
  list(repo: string, revision?: string): Promise<string[]>;
  /** Local paths of these files, downloaded if they are not cached. */
  fetch(repo: string, files: string[], revision?: string): Promise<string[]>;
  /**
   * Whether any revision of it has been downloaded before: a name that could also be a path then means the repository.
   */
  isCached?(repo: string): Promise<boolean>;
}

export interface HubRequest {
  repo: string;
  split?: string;
  subset?: string;
  revision?: string;
}

const hubName = /^[\w.-]+\/[\w.-]+$/;

/** `owner/name`, also `owner/name@revision`. */
export function parseHubName(name: string): { repo: string; revision?: string } | undefined {
  const [repo = '', revision] = name.split('@', 2);
  return hubName.test(repo) && !repo.startsWith('.') ? { repo, revision } : undefined;
}

/**
 * The repository for a name that matches nothing on this disk. A mistyped path is refused; a revision, or a copy in the
 * hub's cache, means that the repository is intended.
 */
export async function repoNamed(name: string, hub: DatasetHub, revision?: string): Promise<HubRequest> {
  const named = parseHubName(name);
  if (named === undefined) throw missingPath(name);
  const place = { repo: named.repo, revision: revision ?? named.revision };
  if (place.revision === undefined && isMistypedPath(name) && !(await hub.isCached?.(named.repo)))
    throw missingPath(name);
  return place;
}

/** Settings for the files of a well-known set. */
export interface KnownFiles {
  subset?: string;
  splits?: Record<string, string>;
  /** Files that are not part of the set. */
  without?: RegExp;
}

export async function hubFiles(hub: DatasetHub, request: HubRequest, known?: KnownFiles): Promise<string[]> {
  const { repo, revision } = request;
  const all = dataFiles(await hub.list(repo, revision)).filter((file) => !known?.without?.test(file));
  if (all.length === 0) {
    throw new UserError(`${repo}: the repository holds no data files that can be read (${knownKinds}).`);
  }
  const chosen = filesOfSubset(all, request.subset ?? known?.subset, repo);
  const split = known?.splits?.[request.split ?? 'train'] ?? request.split;
  return hub.fetch(repo, filesOfSplit(chosen, split, repo), revision);
}
