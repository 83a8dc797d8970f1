/** Texts of strangers are text: a response, a prompt, names of runs, files, metrics and tags that would be HTML. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { bound } from './runs.cases.ts';
import { payload, type World } from './world.ts';

export function strangerCases(shared: () => World): void {
  const isHacked = (page: World['page']) => page.evaluate(() => 'hacked' in globalThis);

  describe('texts of strangers', () => {
    it('would run in a page that takes them for HTML', async () => {
      const { context } = shared();
      const page = await context.newPage();
      await page.setContent(`<body>${payload.replace('src=x', 'src=data:,')}</body>`);
      await page.waitForFunction(() => 'hacked' in globalThis);
      await page.close();
    });

    it.each([true, false])('would be stopped by the policy of the page even then: %s', async (hasPolicy) => {
      const { client, newContext } = bound(shared());
      const context = await newContext();
      const page = await context.newPage();
      // Without the header the same text runs: it is the policy that stops it.
      if (!hasPolicy)
        await page.route('**/', async (route) => {
          const response = await route.fetch();
          const { 'content-security-policy': _, ...headers } = response.headers();
          await route.fulfill({ response, headers });
        });
      await page.goto(client.studio.newUrl());
      await page.getByRole('heading', { name: 'Runs' }).waitFor();
      const refused = page.waitForEvent('console', (message) => /Content Security Policy/.test(message.text()));
      const ran = page.waitForFunction(() => 'hacked' in globalThis);
      await page.locator('body').evaluate((body, html) => body.insertAdjacentHTML('beforeend', html), payload);
      await Promise.any([refused, ran]);
      expect(await isHacked(page)).toBe(!hasPolicy);
      await context.close();
      await Promise.allSettled([refused, ran]);
    });

    it.each([true, false])('are never a script, because their type is not guessed: %s', async (hasHeader) => {
      const { client, newContext } = bound(shared());
      const context = await newContext();
      const page = await context.newPage();
      // Without the header a list as JSON is a script that runs: it is the header that stops it.
      if (!hasHeader)
        await page.route('**/api/runs', async (route) => {
          const response = await route.fetch();
          const { 'x-content-type-options': _, ...headers } = response.headers();
          await route.fulfill({ response, headers });
        });
      await page.goto(client.studio.newUrl());
      await page.getByRole('heading', { name: 'Runs' }).waitFor();
      const outcome = page.evaluate(`new Promise((resolve) => {
        const script = document.createElement('script');
        script.src = '/api/runs';
        script.onload = () => resolve('ran');
        script.onerror = () => resolve('refused');
        document.head.append(script);
      })`);
      expect(await outcome).toBe(hasHeader ? 'refused' : 'ran');
      await context.close();
    });

    const places: [what: string, place: (id: string, root: string) => string, seen: string][] = [
      ['the list of runs', () => 'runs', payload],
      ['a run', (id) => `runs/${id}`, payload],
      ['its options', (id) => `runs/${id}?tab=config`, payload],
      ['its checkpoints', (id) => `runs/${id}?tab=checkpoints`, 'step-1'],
      ['its console', (id) => `runs/${id}?tab=console`, payload],
      ['its rollouts', (id) => `rollouts/${id}`, `response ${payload}`],
      ['one response', (id) => `rollouts/${id}?open=1`, `response ${payload}`],
      ['the prompt over time', (id) => `rollouts/${id}?open=1&view=time`, `response ${payload}`],
      ['the list of datasets', () => 'data', `${payload}.jsonl`],
      ['examples', (_, root) => `data/${encodeURIComponent(join(root, `${payload}.jsonl`))}?tab=examples`, payload],
      ['the rating queue', (_, root) => `data/${encodeURIComponent(join(root, `${payload}.jsonl`))}?tab=rate`, payload],
      ['an unknown page', () => encodeURIComponent(payload), 'There is no such page'],
    ];
    it.each(places)('are text in %s', async (_, place, seen) => {
      const { page, go, idOf, root } = bound(shared());
      await go(place(await idOf(payload), root));
      await page.getByText(seen).filter({ visible: true }).first().waitFor();
      expect(await isHacked(page)).toBe(false);
      expect(await page.locator('img[src=x]').count()).toBe(0);
    });
  });
}
