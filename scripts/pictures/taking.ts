/** Takes the pictures of one look: a theme at a width. */
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import type { RunningStudio } from '../../src/studio/server.ts';
import type { PicturedPage } from './pages.ts';

export const looks = ['light-1280', 'dark-1280', 'light-390', 'dark-390'] as const;
export type Look = (typeof looks)[number];

export interface Taken {
  name: string;
  look: Look;
  path: string;
}

/** Beyond this a page is cut: it only repeats itself. */
const tallest = 1800;

export async function takePictures(
  browser: Browser,
  studio: RunningStudio,
  pages: readonly PicturedPage[],
  look: Look,
  out: string,
): Promise<Taken[]> {
  const [colorScheme, width] = look.split('-') as ['light' | 'dark', string];
  const isPhone = width === '390';
  const context = await browser.newContext({
    colorScheme,
    viewport: isPhone ? { width: 390, height: 844 } : { width: 1280, height: 900 },
    ...(isPhone ? { isMobile: true, hasTouch: true, deviceScaleFactor: 2 } : {}),
    reducedMotion: 'reduce',
  });
  const page = await context.newPage();
  await page.goto(studio.newUrl());
  await page.getByRole('heading', { level: 1 }).waitFor();
  const taken: Taken[] = [];
  for (const { name, place, seen, before, docs } of pages) {
    await page.goto(`${studio.url}/#/${place}`);
    await before?.(page, isPhone);
    await page.locator(seen).first().waitFor();
    await page.setViewportSize({
      width: Number(width),
      height: docs?.look === look ? docs.height : isPhone ? 844 : 900,
    });
    await seenWhole(page);
    await settled(page);
    const path = join(out, `${name}-${look}.png`);
    const height = docs?.look === look ? docs.height : await heightOf(page);
    await page.screenshot({ path, fullPage: true, clip: { x: 0, y: 0, width: Number(width), height } });
    taken.push({ name, look, path });
    console.log(path);
  }
  await context.close();
  return taken;
}

/** Charts are drawn when they come into view. */
const seenWhole = (page: Page) =>
  page.evaluate(`(async () => {
    for (let top = 0; top < Math.min(${tallest}, document.documentElement.scrollHeight); top += 500) {
      scrollTo(0, top);
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
    }
    scrollTo(0, 0);
  })()`);

/** Nothing has been drawn anew for a moment, and no request is under way. */
async function settled(page: Page): Promise<void> {
  await page.evaluate(
    `new Promise((done) => {
      let timer = setTimeout(done, 600);
      const seen = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(done, 600); });
      seen.observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
      setTimeout(done, 5000);
    })`,
  );
}

const heightOf = async (page: Page) =>
  Math.min(tallest, Number(await page.evaluate('Math.max(innerHeight, document.documentElement.scrollHeight)')));
