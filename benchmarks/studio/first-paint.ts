/**
 * What a person waits for: from opening an address in a real browser to the first paint, and to what they came for. Each
 * page is opened in a new tab of a browser that was let in and has the page's files, as a studio that stays open has.
 */
import type { BrowserContext } from 'playwright-core';
import { browserPath } from '../../scripts/chromium.ts';
import type { RunningStudio } from '../../src/studio/server.ts';
import type { Reading } from '../run.ts';

export async function* firstPaints(studio: RunningStudio, runId: string): AsyncGenerator<Reading> {
  const executablePath = browserPath();
  // A development dependency: the bundle has none.
  const playwright = await import('playwright-core').catch(() => undefined);
  if (executablePath === undefined || playwright === undefined) {
    yield { name: 'browser: not measured, there is none here (CHROME_PATH names one)' };
    return;
  }
  const browser = await playwright.chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
  try {
    const context = await browser.newContext({ viewport: { width: 1280, height: 860 } });
    const entrance = await context.newPage();
    await entrance.goto(studio.newUrl());
    await entrance.waitForSelector('.table-row');
    const pages: [name: string, place: string, seen: string][] = [
      ['list of runs', 'runs', '.table-row'],
      ['run, its curves drawn', `runs/${runId}`, '.chart canvas'],
      ['rollouts, their rows', `rollouts/${runId}`, '.table-row:not(.blank)'],
      ['rollouts by reward', `rollouts/${runId}?minReward=0.9&sort=reward&dir=desc`, '.table-row:not(.blank)'],
    ];
    for (const [name, place, seen] of pages)
      yield { name: `browser: ${name}`, ...(await opened(context, `${studio.url}/#/${place}`, seen)) };
  } finally {
    await browser.close();
  }
}

async function opened(context: BrowserContext, url: string, seen: string): Promise<Record<string, number>> {
  const page = await context.newPage();
  // The page itself notes the frame after the one that brought it: asking from outside would be part of the time.
  await page.addInitScript(`
    globalThis.there = new Promise((resolve) => {
      const look = () => document.querySelector(${JSON.stringify(seen)})
        ? requestAnimationFrame(() => resolve(performance.now()))
        : requestAnimationFrame(look);
      look();
    });`);
  await page.goto(url);
  const [milliseconds, paint] = (await page.evaluate(
    `there.then((at) => [at, performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0])`,
  )) as [number, number];
  await page.close();
  return { milliseconds: Math.round(milliseconds), firstPaint: Math.round(paint) };
}
