/** Chat and data: blind votes and ratings by keyboard, and the way from them to a training. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { bound } from './runs.cases.ts';
import { tiny, type World } from './world.ts';

const linesOf = (path: string) =>
  readFileSync(path, 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));

export function chatCases(shared: () => World): void {
  describe('chat', () => {
    it('takes a vote between two models whose names it tells only afterwards', async () => {
      const { page, go, root } = bound(shared());
      await go('chat');
      await page.getByRole('combobox', { name: 'Model', exact: true }).fill(tiny);
      await page.getByRole('combobox', { name: 'Compare with' }).fill(join(root, 'grpo', 'first', 'step-1'));
      await page.getByRole('button', { name: 'Load' }).click();
      await page.getByRole('button', { name: 'Loaded' }).waitFor();
      await page.locator('.chat-settings summary').click();
      await page.getByLabel('Tokens at most').fill('24');
      // Two replies that are the same would be a tie.
      await page.getByLabel('Temperature').fill('2');
      await page.getByLabel('Your message').fill('Spell "abu" backward. Answer with one word.');
      await page.keyboard.press('Enter');
      const votes = page.getByRole('group', { name: 'Which reply is better?' });
      await votes.waitFor();
      await page.reload();
      await votes.waitFor();
      const titles = page.locator('.reply b');
      expect(await titles.allTextContents()).toEqual(['First', 'Second']);
      // Thinking, length and speed would tell which is which.
      expect((await page.locator('.reply-foot .number').allTextContents()).join('')).toBe('');
      expect(await page.locator('.thinking').count()).toBe(0);
      const replies = await page.locator('.reply-text').allTextContents();
      await page.keyboard.press('1');
      await page.getByText('1 vote', { exact: true }).waitFor();
      await page.getByText(/^So far: /).waitFor();
      expect((await page.locator('.reply-foot .number').allTextContents()).join('')).toMatch(/tokens/);
      expect(await titles.allTextContents()).not.toContain('First');
      const [vote] = linesOf(join(root, 'votes.jsonl'));
      // Thinking is folded on the page, and kept in the data.
      const ends = (kept: string, shown = '') => kept.trimEnd().endsWith(shown.trim());
      expect([ends(vote.chosen, replies[0]), ends(vote.rejected, replies[1])]).toEqual([true, true]);
    });

    it('trains on the votes: the form opens with them', async () => {
      const { page, root, until } = bound(shared());
      await page.getByRole('link', { name: 'Train on the votes' }).click();
      await page.locator('#field-dataset').waitFor();
      expect(await page.locator('#field-dataset').inputValue()).toContain('votes.jsonl');
      expect(await page.locator('#field-model').inputValue()).toBe(tiny);
      const values = { epochs: 2, maxSteps: 2, batchSize: 1, gradAccum: 1, evalSteps: -1, runName: 'on-votes' };
      for (const [name, value] of Object.entries(values)) {
        await page.getByLabel('Find an option').fill(name.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`));
        await page.locator(`#field-${name}`).fill(String(value));
      }
      await page.reload();
      const command = page.locator('.outcome .command code');
      await command.getByText('--run-name on-votes').waitFor();
      expect(await command.textContent()).toContain('--max-steps 2');
      expect(await page.locator('.outcome .fault').allTextContents()).toEqual([]);
      await page.getByRole('button', { name: 'Start' }).click();
      await page.getByRole('heading', { name: 'on-votes' }).waitFor();
      const id = page.url().split('/').at(-1)?.split('?')[0];
      await until<{ state: string }>(`/api/runs/${id}`, ({ state }) => state === 'finished');
      await page.locator('.state.finished').waitFor();
      expect(linesOf(join(root, 'preference', 'on-votes', 'metrics.jsonl')).at(-1).step).toBe(2);
    });
  });

  describe('data', () => {
    it('rates ten pairs by keyboard and writes them as preferences', async () => {
      const { page, go, root } = bound(shared());
      const pairs = join(root, 'pairs.jsonl');
      await go(`data/${encodeURIComponent(pairs)}?tab=rate`);
      const shown: { first: string; second: string; vote: string }[] = [];
      for (let i = 0; i < 10; i++) {
        if (i === 5) await page.reload();
        await page.getByText(`${i} rated`, { exact: true }).waitFor();
        await page.getByRole('article', { name: `Pair ${i}`, exact: true }).waitFor();
        const [first = '', second = ''] = await page.locator('.answers pre').allTextContents();
        const vote = i % 3 === 0 ? '2' : '1';
        shown.push({ first, second, vote });
        await page.keyboard.press(vote);
      }
      await page.getByText('10 rated', { exact: true }).waitFor();
      await page.keyboard.press('z');
      await page.getByText('9 rated', { exact: true }).waitFor();
      await page.getByRole('article', { name: 'Pair 9', exact: true }).waitFor();
      await page.keyboard.press('1');
      await page.getByText('10 rated', { exact: true }).waitFor();
      await page.getByRole('button', { name: 'Write preferences' }).click();
      const link = page.getByRole('link', { name: 'Train on these' });
      await link.waitFor();
      const path = new URLSearchParams((await link.getAttribute('href'))?.split('?')[1]).get('dataset') ?? '';
      shown[9] = { ...(shown[9] as (typeof shown)[number]), vote: '1' };
      expect(linesOf(path).map(({ chosen, rejected }) => [chosen, rejected])).toEqual(
        shown.map(({ first, second, vote }) => (vote === '1' ? [first, second] : [second, first])),
      );
    });
  });
}
