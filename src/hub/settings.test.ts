import { homedir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { hubSettings } from './settings.ts';

it('takes a variable that is empty for one that is not set', async () => {
  const empty = { HF_HOME: '', XDG_CACHE_HOME: '', HF_HUB_CACHE: '', HF_ENDPOINT: '', HF_TOKEN: '' };
  const plain = await hubSettings({ env: { HUGGINGFACE_TOKEN: 'hf_a' } });
  expect(await hubSettings({ env: { ...empty, HUGGINGFACE_TOKEN: 'hf_a' } })).toEqual(plain);
  expect(plain).toMatchObject({ cacheDir: join(homedir(), '.cache/huggingface/hub'), token: 'hf_a' });
});
