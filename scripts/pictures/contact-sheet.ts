/** One picture of a page in all its looks, side by side: what differs shows at a glance. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser } from 'playwright-core';
import type { Taken } from './taking.ts';

export async function contactSheet(browser: Browser, name: string, all: readonly Taken[], out: string): Promise<void> {
  const own = all.filter((each) => each.name === name);
  const figures = own.map(({ look, path }) => {
    const picture = `data:image/png;base64,${readFileSync(path).toString('base64')}`;
    const width = look.endsWith('390') ? 300 : 760;
    return `<figure><figcaption>${name}, ${look}</figcaption><img src="${picture}" width="${width}"></figure>`;
  });
  const page = await browser.newPage({ viewport: { width: 2240, height: 800 } });
  await page.setContent(
    `<style>body { margin: 16px; display: flex; gap: 16px; align-items: flex-start; background: #888; font: 14px sans-serif }
     figure { margin: 0 } figcaption { margin-bottom: 6px; color: #fff }</style>${figures.join('')}`,
  );
  await page.screenshot({ path: join(out, `sheet-${name}.png`), fullPage: true });
  await page.close();
}
