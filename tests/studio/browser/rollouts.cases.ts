/** Rollouts: found, opened to the token, recomputed. Every number is checked against the run's database by plain SQL. */
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { bound } from './runs.cases.ts';
import type { World } from './world.ts';

export function rolloutCases(shared: () => World): void {
  const database = () => new DatabaseSync(join(shared().root, 'grpo', 'first', 'rollouts.db'), { readOnly: true });

  describe('rollouts', () => {
    it('filters and searches them as SQL does', async () => {
      const { page, go, idOf } = bound(shared());
      await go(`rollouts/${await idOf('first')}`);
      using stored = database();
      const count = (where: string) =>
        Number(stored.prepare(`select count(*) n from rollouts where ${where}`).get()?.n);
      const found = (expected: number) => page.getByRole('status').getByText(`${expected} found`).waitFor();
      await found(24);
      await page.getByRole('searchbox').fill('spell');
      await found(count("prompt like '%spell%'"));
      await page.reload();
      await found(count("prompt like '%spell%'"));
      expect(await page.getByRole('searchbox').inputValue()).toBe('spell');
      await page.getByRole('searchbox').fill('');
      if (!(await page.getByLabel('Reward, from').isVisible()))
        await page.getByRole('button', { name: 'Filters' }).click();
      await page.getByLabel('Reward, from').fill('0.5');
      await page.getByLabel('Step, from').fill('2');
      await found(count('reward >= 0.5 and step >= 2'));
      await page.getByRole('button', { name: 'Clear all' }).click();
      await found(24);
    });

    it('shows the numbers of every token as they were stored', async () => {
      const { page, go, idOf } = bound(shared());
      await go(`rollouts/${await idOf('first')}?open=9&view=tokens`);
      using stored = database();
      const row = stored.prepare('select * from rollout_tokens where rollout_id = 9').get() as Record<
        string,
        Uint8Array
      >;
      const floats = (name: string) => Array.from(new Float32Array((row[name] as Uint8Array).slice().buffer));
      const [logprobs, references] = [floats('logprobs'), floats('ref_logprobs')];
      const ids = Array.from(new Int32Array((row.completion_ids as Uint8Array).slice().buffer));
      const { advantage } = stored.prepare('select advantage from rollouts where id = 9').get() as {
        advantage: number;
      };
      await page.locator('.token-text .token').first().waitFor();
      await page.reload();
      const tokens = page.getByRole('group', { name: /^Tokens of the response/ });
      await tokens.waitFor();
      expect(await tokens.locator('.token').count()).toBe(ids.length);
      await tokens.focus();
      await page.keyboard.press('Home');
      const numbers = page.locator('.token-numbers');
      // Three digits are shown; every digit is in the tooltip.
      const exact = async (name: string) => {
        const found = numbers.locator('dl div', { has: page.getByText(name, { exact: true }) }).locator('dd .number');
        return Number((await found.getAttribute('title'))?.replace('−', '-'));
      };
      for (const [i, id] of ids.entries()) {
        await numbers.getByText(`token ${i + 1} of ${ids.length}, id ${id}`).waitFor();
        expect(await exact('log-prob (sampled)')).toBeCloseTo(logprobs[i] as number, 5);
        expect(await exact('log-prob (reference)')).toBeCloseTo(references[i] as number, 5);
        expect(await exact('advantage')).toBeCloseTo(advantage, 5);
        await page.keyboard.press('ArrowRight');
      }
    });

    it('marks the open response in the table beside it, and scrolls to it', async () => {
      const { page, go, idOf } = bound(shared());
      await go(`rollouts/${await idOf('first')}`);
      await page.getByRole('grid', { name: 'Responses' }).getByRole('row').nth(1).waitFor();
      await go(`rollouts/${await idOf('first')}?open=24`);
      const row = page.getByRole('row', { selected: true });
      await row.waitFor();
      expect(await row.getAttribute('aria-rowindex')).toBe('25');
      const [box, grid] = [await row.boundingBox(), await page.getByRole('grid').boundingBox()];
      expect((box?.y ?? 0) + (box?.height ?? 0)).toBeLessThanOrEqual((grid?.y ?? 0) + (grid?.height ?? 0) + 1);
    });

    it('recomputes a step under Dr. GRPO: advantages without the division by the deviation', async () => {
      const { page, go, idOf } = bound(shared());
      // Held-out responses are of other steps (0 and 3): step 2 must not become one of theirs on the way.
      await go(`rollouts/${await idOf('first')}?eval=1`);
      await page.getByText('4 found').waitFor();
      await go(`rollouts/${await idOf('first')}?step=2`);
      await page.getByRole('button', { name: 'What if …' }).click();
      await page.getByText('recorded: grpo').waitFor();
      await page.reload();
      await page.getByText('changed: grpo').waitFor();
      await page.getByLabel('Algorithm').selectOption('drgrpo');
      await page.getByText('changed: drgrpo').waitFor();
      using stored = database();
      const rows = stored.prepare('select id, prompt_index p, reward from rollouts where step = 2 order by id').all();
      for (const { id, p, reward } of rows) {
        const group = rows.filter((row) => row.p === p).map((row) => Number(row.reward));
        const mean = group.reduce((sum, value) => sum + value, 0) / group.length;
        const bars = page.locator('.advantages tr', { has: page.getByRole('button', { name: `${id}`, exact: true }) });
        const changed = await bars.locator('td').last().locator('.number').getAttribute('title');
        expect(Number(changed?.replaceAll('−', '-'))).toBeCloseTo(Number(reward) - mean, 4);
      }
    });
  });
}
