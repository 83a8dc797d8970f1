/**
 * The pictures of the studio: every page in light and dark, at 1280 px and on a phone, from runs that it trains itself.
 *
 *     npm run pictures                          # into outputs/pictures; those of the docs into docs/images too
 *     npm run pictures -- --all                 # and a contact sheet per page, all its themes and widths side by side
 *     npm run pictures -- --out DIR --runs DIR  # --runs keeps the runs, so that a second call need not train them
 *     npm run pictures -- --only run            # those whose names begin so
 *
 * It needs a Chromium on this machine (or CHROME_PATH).
 */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { chromium } from 'playwright-core';
import { speakTo } from '../src/spelling.ts';
import { startStudio } from '../src/studio/index.ts';
import { browserPath } from './chromium.ts';
import { sayingMistakes } from './help.mjs';
import { contactSheet } from './pictures/contact-sheet.ts';
import { pagesOf } from './pictures/pages.ts';
import { looks, type Taken, takePictures } from './pictures/taking.ts';
import { makeWorld, studioOptions } from './pictures/world.ts';

const repository = join(import.meta.dirname, '..');

async function main(): Promise<void> {
  const { values } = parseArgs({
    options: {
      all: { type: 'boolean', default: false },
      out: { type: 'string', default: join(repository, 'outputs', 'pictures') },
      runs: { type: 'string' },
      only: { type: 'string' },
    },
  });
  const executablePath = browserPath();
  if (executablePath === undefined) {
    console.error(
      'There is no Chromium on this machine: install one (chromium, google-chrome), or name it in CHROME_PATH.',
    );
    process.exitCode = 2;
    return;
  }
  const out = resolve(values.out);
  mkdirSync(out, { recursive: true });
  const root = values.runs === undefined ? mkdtempSync(join(tmpdir(), 'attune-pictures-')) : resolve(values.runs);
  try {
    // Options are named as `attune studio` names them.
    speakTo('command line');
    const world = await makeWorld(root);
    await using studio = await startStudio(studioOptions(root));
    const browser = await chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-gpu'] });
    const pages = (await pagesOf(studio, world)).filter(({ name }) => !values.only || name.startsWith(values.only));
    const taken: Taken[] = [];
    for (const look of looks) taken.push(...(await takePictures(browser, studio, pages, look, out)));
    for (const { name, docs } of pages) {
      if (docs === undefined) continue;
      const { path } = taken.find((each) => each.name === name && each.look === docs.look) as Taken;
      copyFileSync(path, join(repository, 'docs', 'images', docs.file));
    }
    if (values.all) for (const { name } of pages) await contactSheet(browser, name, taken, out);
    await browser.close();
    console.log(`${taken.length} pictures in ${out}`);
  } finally {
    if (values.runs === undefined) rmSync(root, { recursive: true, force: true });
  }
}

await sayingMistakes(main);
