/** Shared by the hub's tests: repositories with models of every kind, a server for them, and a cache. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { type Seen, startHub, type TestHub } from './server.test-support.ts';

export const weights = randomBytes(300_000);
export const shard = randomBytes(1000);
export const index = JSON.stringify({ weight_map: { a: 'model-1.safetensors', b: 'model-2.safetensors' } });
export const repos = {
  'org/whole': {
    'config.json': '{"model_type":"llama"}',
    'tokenizer.json': '{}',
    'tokenizer_config.json': '{}',
    'README.md': '# hello',
    'model.safetensors': weights,
    'consolidated.safetensors': shard,
    'pytorch_model.bin': shard,
    'original/params.json': '{}',
  },
  'org/sharded': {
    'config.json': '{}',
    'model.safetensors.index.json': index,
    'model-1.safetensors': shard,
    'model-2.safetensors': Buffer.from('second'),
  },
  'org/adapter': { 'adapter_config.json': '{}', 'adapter_model.safetensors': shard, 'optimizer.pt': shard },
  'org/pickle': { 'config.json': '{}', 'pytorch_model.bin': shard },
  'org/gguf': { 'model.gguf': shard },
  'org/data': { 'README.md': '', 'main/train.parquet': shard, 'main/test.parquet': weights, 'other/x.jsonl': '{}' },
};
export const TOKEN = 'hf_secretsecretsecret';

export let hub: TestHub;
export let cache: string;
export const options = () => ({
  endpoint: hub.endpoint,
  cacheDir: cache,
  token: TOKEN,
  timeoutMs: 60_000,
  retries: 2,
  backoffMs: 5,
  env: {},
});
export const isWeights = (request: Seen) => request.server === 'cdn' && request.url.includes('model.safetensors');
export const once = <T>(value: T) => {
  let left: T | undefined = value;
  return () => {
    const taken = left;
    left = undefined;
    return taken;
  };
};

/** A hub and an empty cache for each test of the calling file. */
export function useHub(): void {
  beforeEach(async () => {
    hub = await startHub(repos);
    cache = await mkdtemp(join(tmpdir(), 'attune-hub-'));
  });
  afterEach(async () => {
    await hub.close().catch(() => {});
    await rm(cache, { recursive: true });
  });
}
