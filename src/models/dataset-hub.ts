/**
 * The hub as a source of datasets, in the form that `openDataset` takes.
 *
 *     const pairs = await openDataset('trl-lib/ultrafeedback_binarized', { hub: datasetHub({ progress }) });
 */
import { join } from 'node:path';
import { type FetchOptions, fetchRepoFiles, listRepoFiles } from './hub.ts';

type HubAccess = Omit<FetchOptions, 'repo' | 'type' | 'revision' | 'patterns'>;

export function datasetHub(options: HubAccess = {}) {
  return {
    async list(repo: string, revision?: string): Promise<string[]> {
      const { files } = await listRepoFiles({ ...options, repo, revision, type: 'dataset' });
      return files.map((file) => file.path);
    },
    async fetch(repo: string, files: string[], revision?: string): Promise<string[]> {
      const { folder } = await fetchRepoFiles({
        ...options,
        repo,
        revision,
        type: 'dataset',
        patterns: (path) => files.includes(path),
      });
      return files.map((file) => join(folder, file));
    },
  };
}
