/** Runs: opened, overlaid, a checkpoint deleted. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { World } from './world.ts';

export function runCases(shared: () => World): void {
  describe('runs', () => {
    it('opens on the runs below its folder, and the cookie lets a reload in', async () => {
      const { page } = shared();
      const table = page.getByRole('grid', { name: 'Runs' });
      for (const name of ['first', 'second']) await table.getByRole('link', { name, exact: true }).waitFor();
      expect(page.url()).not.toContain('token');
      await page.reload();
      await table.getByRole('link', { name: 'first', exact: true }).waitFor();
      await table.getByRole('link', { name: 'first', exact: true }).click();
      await page.getByRole('heading', { name: 'first', exact: true }).waitFor();
      await page.locator('canvas').first().waitFor();
    });

    it('lays two over one another, and tells in what they differ', async () => {
      const { page, go } = bound(shared());
      await go('runs');
      for (const name of ['first', 'second']) await page.getByRole('checkbox', { name: `Choose ${name}` }).check();
      const legends = page.locator('.chart-legend');
      await page.locator('.chart canvas').first().waitFor();
      await page.reload();
      await page.locator('.chart canvas').first().waitFor();
      expect(await page.getByRole('grid').getByRole('checkbox', { checked: true }).count()).toBe(2);
      const labels = await legends.first().locator('.cut').allTextContents();
      expect(labels).toEqual(['first', 'second']);
      await page.getByRole('button', { name: 'Options that differ' }).click();
      const row = page.locator('.difference tr', { has: page.getByText('lr', { exact: true }) });
      await row.waitFor();
      expect(await row.locator('td').allTextContents()).toEqual(['0.0002', '0.0001']);
    });

    it('goes from a point of a curve to the rollouts of its step', async () => {
      const { page, go, idOf } = bound(shared());
      const id = await idOf('first');
      await go(`runs/${id}`);
      const chart = page.getByRole('group', { name: /^accuracy/i }).first();
      await chart.focus();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      await page.getByText('Step 3', { exact: true }).waitFor();
      expect(page.url()).toContain(`#/rollouts/${id}?step=3`);
    });

    it('deletes a checkpoint only after the word', async () => {
      const { page, go, idOf, root } = bound(shared());
      const folder = join(root, 'grpo', 'first');
      await go(`runs/${await idOf('first')}?tab=checkpoints`);
      const ask = () => page.locator('tr', { hasText: 'step-2' }).getByRole('button', { name: 'Delete …' }).click();
      await ask();
      await page.getByRole('dialog').getByText('step-2').waitFor();
      await page.reload();
      await ask();
      const confirm = page.getByRole('dialog').getByRole('button', { name: 'Delete', exact: true });
      await page.getByLabel('Type DELETE to confirm').fill('delete');
      expect(await confirm.isDisabled()).toBe(true);
      expect(existsSync(join(folder, 'step-2'))).toBe(true);
      await page.getByLabel('Type DELETE to confirm').fill('DELETE');
      await confirm.click();
      await page.locator('tr', { hasText: 'step-2' }).waitFor({ state: 'detached' });
      expect(existsSync(join(folder, 'step-2'))).toBe(false);
      expect(existsSync(join(folder, 'step-1'))).toBe(true);
    });
  });
}

/** The parts of a world, with its methods bound to it. */
export function bound(world: World) {
  const { page, root, client, context, problems } = world;
  return {
    ...{ page, root, client, context, problems },
    newContext: world.newContext.bind(world) as World['newContext'],
    go: (place: string) => world.go(place),
    idOf: (name: string) => world.idOf(name),
    until: world.until.bind(world) as World['until'],
  };
}
