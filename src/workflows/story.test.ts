import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { tinyModel } from '../../tests/support/tiny-model.ts';
import { tellStory } from './story.ts';

it('tells the whole story, in as little time as it is given', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'attune-story-'));
  try {
    const model = await tinyModel(join(folder, 'model'));
    const lines: string[] = [];
    const story = await tellStory({
      ...{
        model,
        folder: join(folder, 'out'),
        tasks: 'chain_sum:1',
        minutes: 0.01,
        pairs: 60,
        heldOut: 4,
        maxNewTokens: 6,
      },
      print: (line) => lines.push(line),
    });
    expect(lines.filter((line) => /^\n?\d\. /.test(line)).length).toBe(5);
    expect(Object.values(story.accuracy).every((share) => share >= 0 && share <= 1)).toBe(true);
    expect(existsSync(join(folder, 'out', 'pairs.jsonl'))).toBe(true);
    const page = readFileSync(story.report, 'utf8');
    for (const text of ['GRPO against the verifier', '<svg', 'The same problems before and after', 'Where to go next'])
      expect(page).toContain(text);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
