import { mkdtempSync, readdirSync, readlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openDataset } from '../../data/index.ts';
import { Tokenizer } from '../../text/index.ts';
import { tokenSets } from './token-sets.ts';

const tiny = join(import.meta.dirname, '../../../models/tiny');

/** Token stores under a folder that this process still holds open. */
function openBelow(folder: string): string[] {
  const targets = readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(`/proc/self/fd/${fd}`)];
    } catch {
      return []; // closed in the meantime
    }
  });
  return targets.filter((target) => target.startsWith(folder));
}

it('closes the training set where the held-out set cannot be tokenised', async () => {
  const cache = mkdtempSync(join(tmpdir(), 'attune-token-sets-'));
  const rows = (chosen: string) => openDataset([{ prompt: 'a', chosen, rejected: 'c' }], { shape: 'preference' });
  const tokenizer = await Tokenizer.load(tiny);
  const encoding = { cache, maxLength: 50 };
  const good = { train: await rows('b'), validation: await rows('d') };
  const sets = await tokenSets(good, tokenizer, encoding);
  expect(openBelow(cache)).toHaveLength(2);
  await sets.close();
  expect(openBelow(cache)).toEqual([]);
  const tooLong = { train: await rows('b'), validation: await rows('word '.repeat(100)) };
  await expect(tokenSets(tooLong, tokenizer, encoding)).rejects.toThrow();
  expect(openBelow(cache)).toEqual([]);
});
