/** What holds on every page: keys, a phone, a lost connection, a studio that is started again, one that only looks. */
import { cpSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { freePort } from '../../../src/dist/meeting.ts';
import { schemaSql } from '../../../src/runs/store/schema.ts';
import { makeRun, openStudio, removeFolder, temporaryFolder } from '../../../src/studio/studio.test-support.ts';
import { bound } from './runs.cases.ts';
import { patienceMs, tiny, type World } from './world.ts';

/** The model as lists name it: as it is typed here. */
const known = relative(process.cwd(), tiny);
const page = join(import.meta.dirname, '../../../dist/studio-page');

/** Texts of tabs and tables that stand outside of the window's width, or upon another. */
const misplacedTexts = `(() => {
  const boxes = [];
  for (const place of document.querySelectorAll('.tabs, .plain-table')) {
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode;
      if (text.data.trim() === '' || text.parentElement.closest('.hidden-visually, .stacked thead')) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      for (const { left, right, top, bottom } of range.getClientRects())
        boxes.push({ text: text.data, left: left + 1, right: right - 1, top: top + 2, bottom: bottom - 2 });
    }
  }
  if (boxes.length < 20) return ['only ' + boxes.length + ' texts'];
  const outside = boxes.filter(({ left, right }) => left < 0 || right > innerWidth);
  const onAnother = boxes.filter((a, i) => boxes.some((b, j) =>
    j < i && a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom));
  return [...outside, ...onAnother].map(({ text }) => text);
})()`;

export function aroundCases(shared: () => World): void {
  describe('everywhere', () => {
    it('is walked through by keys alone, which ? lists', async () => {
      const { page, go } = bound(shared());
      await go('runs');
      await page.getByRole('grid', { name: 'Runs' }).waitFor();
      await page.keyboard.press('?');
      const list = page.getByRole('dialog', { name: 'Keys' });
      for (const what of ['search', 'Rollouts', 'move in a table or list'])
        await list.getByText(what).first().waitFor();
      await page.keyboard.press('Escape');
      await list.waitFor({ state: 'detached' });
      const places = { o: 'Rollouts', c: 'Chat', d: 'Data', t: 'Train', m: 'Models', r: 'Runs' };
      for (const [key, title] of Object.entries(places)) {
        const heading = page.getByRole('heading', { level: 1, name: title });
        // The two keys of a sequence belong together for a second, which a loaded machine may take for each.
        const isThere = async () => {
          await page.keyboard.press('g');
          await page.keyboard.press(key);
          return heading.waitFor({ timeout: 3000 }).then(
            () => true,
            () => false,
          );
        };
        await expect.poll(isThere, { timeout: patienceMs }).toBe(true);
      }
      await page.keyboard.press('/');
      await page.keyboard.type('first');
      await page.getByRole('heading', { name: 'Runs 1 of' }).waitFor();
      await page.keyboard.press('Tab');
      await page.getByRole('grid', { name: 'Runs' }).focus();
      await page.keyboard.press('j');
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'first', exact: true }).waitFor();
      await page.keyboard.press('3');
      await page.getByRole('columnheader', { name: 'checkpoint' }).waitFor();
    });

    it('goes from a point of a comparison to the rollouts of the run that it belongs to', async () => {
      const { page, go, idOf } = bound(shared());
      const [first, second] = [await idOf('first'), await idOf('second')];
      await go(`runs?with=${second},${first}`);
      const chart = page.getByRole('group', { name: /^reward, training: second/ });
      await chart.focus();
      await page.keyboard.press('End');
      await page.keyboard.press('Enter');
      await page.getByText('Step 3', { exact: true }).waitFor();
      expect(page.url()).toContain(`#/rollouts/${second}?step=3`);
    });

    it('serves a model from its panel, and stops it there', async () => {
      const { page, go } = bound(shared());
      await go(`models?model=${encodeURIComponent(known)}`);
      const panel = page.getByRole('article', { name: known });
      await panel.getByLabel('Port').fill('0');
      await panel.getByRole('button', { name: 'Serve', exact: true }).click();
      const job = page.getByRole('region', { name: `${known} served` });
      const address = job.getByText(/^http:\/\/127\.0\.0\.1:\d+\/v1$/);
      await address.waitFor();
      await page.reload();
      await address.waitFor();
      const url = (await address.textContent()) ?? '';
      expect((await fetch(`${url}/models`)).status).toBe(200);
      await job.getByRole('button', { name: 'Stop' }).click();
      await job.getByText('stopped').waitFor();
      await expect(fetch(`${url}/models`)).rejects.toThrow();
    });

    it('is no wider than a phone, with what leads to the pages in sight', async () => {
      const { client, root, idOf, newContext } = bound(shared());
      const context = await newContext({
        ...{ viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true, colorScheme: 'dark' },
      });
      const phone = await context.newPage();
      await phone.goto(client.studio.newUrl());
      await phone.getByRole('heading', { name: 'Runs' }).waitFor();
      const id = await idOf('first');
      const pairs = encodeURIComponent(join(root, 'pairs.jsonl'));
      const places = {
        ...{ runs: '.table-row', [`runs/${id}`]: '.chart canvas', [`runs/${id}?tab=config`]: '.plain-table' },
        ...{ [`runs/${id}?tab=checkpoints`]: '.plain-table', [`rollouts/${id}`]: '.table-row' },
        ...{ [`rollouts/${id}?open=9&view=tokens`]: '.token-text .token', chat: '.composer', 'train/policy': '.field' },
        ...{ [`data/${pairs}?tab=examples`]: '.answers', [`data/${pairs}?tab=rate`]: '.rate-buttons' },
        ...{ data: '.page', models: '.table-row', [`models?model=${encodeURIComponent(known)}`]: '.model-panel' },
      };
      for (const [place, seen] of Object.entries(places)) {
        await phone.goto(`${client.studio.url}/#/${place}`);
        await phone.locator(seen).first().waitFor();
        const width = Number(await phone.evaluate('document.documentElement.scrollWidth'));
        expect([place, width]).toEqual([place, 375]);
        const nav = await phone.getByRole('navigation', { name: 'Pages' }).boundingBox();
        expect([place, Math.round((nav?.y ?? 0) + (nav?.height ?? 0)) <= 812]).toEqual([place, true]);
      }
      // Options and checkpoints are read without scrolling their tables sideways.
      for (const [tab, seen] of Object.entries({ config: '.options', checkpoints: '.plain-table .danger' })) {
        await phone.goto(`${client.studio.url}/#/runs/${id}?tab=${tab}`);
        await phone.locator(seen).first().waitFor();
        for (const folded of await phone.locator('main details > summary').all()) await folded.click();
        expect([tab, await phone.evaluate(misplacedTexts)]).toEqual([tab, []]);
      }
      // A field that is there but too narrow to type into.
      await phone.goto(`${client.studio.url}/#/data/${pairs}?tab=examples`);
      const field = await phone.getByRole('searchbox', { name: 'Search examples' }).boundingBox();
      expect(field?.width).toBeGreaterThan(100);
      await context.close();
    });

    it('is no wider than a phone where names are long, and blames no filter for a run without responses', async () => {
      const { newContext } = bound(shared());
      const root = temporaryFolder();
      const long = 'a-name-as-long-as-people-give-them-who-write-their-options-into-it';
      const run = makeRun(root, join(long, `${long}-2`));
      const rollouts = { name: long, command: 'train policy', status: 'failed', step: 0, rollouts: 'rollouts.db' };
      writeFileSync(join(run, 'run.json'), JSON.stringify({ ...rollouts, created: '2026-01-01T00:00:00.000Z' }));
      new DatabaseSync(join(run, 'rollouts.db')).exec(schemaSql);
      cpSync(tiny, join(root, long, 'model'), { recursive: true });
      const studio = await openStudio({ root, page, modelFolders: [join(root, long)] });
      const context = await newContext({ viewport: { width: 375, height: 812 }, isMobile: true, hasTouch: true });
      const phone = await context.newPage();
      await phone.goto(studio.studio.newUrl());
      await phone.getByRole('heading', { name: 'Runs' }).waitFor();
      const places = { runs: '.table-row', rollouts: '.run-choice', chat: '.suggestions a', models: '.table-row' };
      for (const [place, seen] of Object.entries(places)) {
        await phone.goto(`${studio.studio.url}/#/${place}`);
        await phone.locator(seen).first().waitFor();
        expect([place, await phone.evaluate('document.documentElement.scrollWidth')]).toEqual([place, 375]);
        if (place === 'rollouts') await phone.getByText('This run stored no responses.').waitFor();
      }
      await context.close();
      await studio.studio.close();
      removeFolder(root);
    });

    it('says that the studio is gone, keeps what it shows, and goes on when it is back', async () => {
      const { root, newContext } = bound(shared());
      const port = await freePort();
      const first = await openStudio({ root, page, port });
      const context = await newContext();
      const tab = await context.newPage();
      await tab.goto(first.studio.newUrl());
      const run = tab.getByRole('link', { name: 'first', exact: true });
      await run.waitFor();
      await context.setOffline(true);
      const lost = tab.getByText('The studio does not answer');
      await lost.waitFor();
      expect(await run.isVisible()).toBe(true);
      await context.setOffline(false);
      await lost.waitFor({ state: 'detached' });
      // Another studio at the same address knows no cookie of the one before: it says so, and lets its own token in.
      await first.studio.close();
      await lost.waitFor();
      const again = await openStudio({ root, page, port });
      await tab.getByText('This browser is not signed in').waitFor();
      await tab.goto(again.studio.newUrl());
      await run.waitFor();
      await context.close();
      await again.studio.close();
    });

    it('offers nothing that changes something with --read-only', async () => {
      const { root, idOf, newContext } = bound(shared());
      const quiet = await openStudio({ root, page, readOnly: true });
      const context = await newContext();
      const tab = await context.newPage();
      await tab.goto(quiet.studio.newUrl());
      await tab.getByText('read only', { exact: true }).waitFor();
      await tab.goto(`${quiet.studio.url}/#/runs/${await idOf('first')}?tab=checkpoints`);
      await tab.getByRole('columnheader', { name: 'checkpoint' }).waitFor();
      for (const name of ['Delete …', 'Stop', 'Resume', 'Train further'])
        expect([name, await tab.getByRole('button', { name }).count()]).toEqual([name, 0]);
      await tab.goto(`${quiet.studio.url}/#/models?model=${encodeURIComponent(join(root, 'grpo', 'first', 'step-1'))}`);
      await tab.locator('.model-panel').waitFor();
      for (const name of ['Serve', 'Quantise', 'Export'])
        expect([name, await tab.getByRole('button', { name, exact: true }).count()]).toEqual([name, 0]);
      await context.close();
      await quiet.studio.close();
    });
  });
}
