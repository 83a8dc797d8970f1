/** A training from the form: started, watched as it goes, stopped and resumed. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { RunDetail } from '../../../src/studio/api.ts';
import { bound } from './runs.cases.ts';
import { patienceMs, tiny, type World } from './world.ts';

export function trainingCases(shared: () => World): void {
  describe('train', () => {
    it('starts a run that is watched live, stopped and resumed', async () => {
      const { page, go, root, until } = bound(shared());
      const values = {
        ...{ model: tiny, task: 'spell_backward:1', batchSize: '1', gradAccum: '1', groupSize: '2' },
        ...{ maxNewTokens: '16', evalNumPrompts: '0', evalSteps: '-1', maxSteps: '20000', runName: 'live' },
      };
      const filled = new URLSearchParams({ ...values, lr: 'fast' });
      await go(`train/policy?${filled}`);
      const fault = page.locator('.field', { has: page.locator('#field-lr') }).getByRole('alert');
      await fault.waitFor();
      expect(await page.getByRole('button', { name: 'Start' }).isDisabled()).toBe(true);
      await page.locator('#field-lr').fill('1e-5');
      await fault.waitFor({ state: 'detached' });
      await page.reload();
      await page.locator('.plan').getByText('1 prompt × 2 responses').waitFor();
      await page.getByRole('button', { name: 'Start' }).click();
      await page.getByRole('heading', { name: 'live' }).waitFor();
      const id = page.url().split('/').at(-1)?.split('?')[0];
      const detail = `/api/runs/${id}`;

      // The page follows by itself: charts appear and move on without a reload.
      const charts = page.locator('.chart canvas');
      await charts.first().waitFor();
      const progress = page.getByRole('progressbar', { name: 'Steps taken' });
      const seen = async () => Number(await progress.getAttribute('aria-valuenow'));
      const later = async (than: number) => {
        await expect.poll(seen, { timeout: patienceMs }).toBeGreaterThan(than);
        return seen();
      };
      const first = await later(0);
      expect(await later(first)).toBeGreaterThan(first);
      await page.reload();
      await later(first);

      await page.getByRole('button', { name: 'Stop' }).click();
      await page.getByRole('button', { name: 'Resume' }).waitFor();
      const stopped = await until<RunDetail>(detail, ({ state }) => state === 'interrupted');
      expect(stopped.snapshots.map(({ name }) => name)).toContain(`step-${stopped.step}`);
      await page.reload();
      await page.getByRole('button', { name: 'Resume' }).click();
      await page.getByRole('button', { name: 'Stop' }).waitFor();
      const resumed = await until<RunDetail>(detail, ({ step }) => step > stopped.step);
      expect(resumed.path).toBe(stopped.path);
      await page.getByRole('button', { name: 'Stop' }).click();
      await until<RunDetail>(detail, ({ state }) => state === 'interrupted');
      expect(join(root, resumed.path)).toContain('live');
    });
  });
}
