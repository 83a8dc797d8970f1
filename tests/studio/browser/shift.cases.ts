/**
 * Nothing on a page moves by itself while data stream in: the browser's own measure (PerformanceObserver, layout-shift)
 * is exactly 0. Each case waits for what the page shows in the end, never for a time.
 */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Page } from 'playwright-core';
import { describe, expect, it } from 'vitest';
import { lockRun } from '../../../src/runs/index.ts';
import { schemaSql } from '../../../src/runs/store/schema.ts';
import { makeRun } from '../../../src/studio/studio.test-support.ts';
import { bound } from './runs.cases.ts';
import { tiny, type World } from './world.ts';

/** A run that this process writes as a training does. */
class Live implements Disposable {
  readonly name: string;
  readonly folder: string;
  readonly steps = 60;
  /** The newest. */
  step = 0;
  #lock: Disposable;

  constructor(root: string, name: string) {
    this.name = name;
    this.folder = makeRun(root, name, { status: 'running', config: { model: tiny, algorithm: 'grpo' }, rows: [] });
    this.#lock = lockRun(this.folder, 'train policy');
    const database = new DatabaseSync(join(this.folder, 'rollouts.db'));
    database.exec(schemaSql);
    database.close();
    this.#tell('running', 0);
  }

  /** Rewards that rise and collapse, metrics that come later, evaluations, checkpoints, a console. */
  write(from: number, to: number): void {
    using database = new DatabaseSync(join(this.folder, 'rollouts.db'));
    const add = database.prepare('insert into rollouts values (null, ?, 0, ?, 0, ?, ?, ?, 0)');
    for (let step = from; step <= to; step++) {
      const reward = step < 30 ? 0.2 + 0.02 * step + 0.05 * (step % 3) : 0.1 + 0.01 * (step % 2);
      const row = {
        ...{ step, time: 1_700_000_000_000 + 1000 * step, 'train/reward': reward, 'train/score': reward },
        ...{ 'train/accuracy': reward, 'train/policy_loss': 0.1 * Math.sin(step), 'train/kl': 0.001 * step ** 2 },
        ...{
          'train/entropy': 1 / step,
          'train/length_mean': 10 + step * step,
          'train/lr': 1e-4,
          'train/zero_spread': 0.6,
        },
        ...(step > 20 ? { 'train/clip_fraction': 0.01 * (step % 4) } : {}),
        ...(step % 10 === 0 ? { 'eval/accuracy': reward, 'eval/reward': reward, 'eval/examples': 48 } : {}),
      };
      appendFileSync(join(this.folder, 'metrics.jsonl'), `${JSON.stringify(row)}\n`);
      appendFileSync(join(this.folder, 'train.log'), `step ${step}\n`);
      for (let i = 0; i < 8; i++) add.run(step, i, `What is ${i} + ${step}?`, `${i + step}`, reward);
      if (step % 5 === 0) {
        mkdirSync(join(this.folder, `step-${step}`));
        writeFileSync(join(this.folder, `step-${step}`, 'trainer_state.json'), '{}');
      }
    }
    this.step = to;
    this.#tell('running', to);
  }

  finish(): void {
    this.#tell('finished', this.steps);
    this.#lock[Symbol.dispose]();
  }

  #tell(status: string, step: number): void {
    const info = { name: this.name, command: 'train policy', status, step, totalSteps: this.steps };
    const created = '2026-01-01T00:00:00.000Z';
    writeFileSync(join(this.folder, 'run.json'), JSON.stringify({ ...info, created, rollouts: 'rollouts.db' }));
  }

  [Symbol.dispose](): void {
    this.finish();
  }
}

/**
 * Installed before the page's own scripts. A caret goes with its text: on a busy machine one is seen on its way, or its movement is told once it has
 * left the page, with no node.
 */
const observe = `
  globalThis.shifts = [];
  const name = (node) => node?.nodeType === 1 ? node.tagName.toLowerCase() + '.' + node.className : '#' + node?.textContent;
  const isCaret = ({ node, currentRect: { width, height } }) => (node ? node.className === 'caret' : width === 8 && height === 15);
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries())
      if (sources.length === 0 || !sources.every(isCaret))
        shifts.push(value.toFixed(5) + ' ' + sources.map(({ node, previousRect: a, currentRect: b }) =>
          name(node) + ' ' + [a.x, a.y, a.width, a.height] + ' → ' + [b.x, b.y, b.width, b.height]).join('; '));
  }).observe({ type: 'layout-shift' });`;

const wideSize = { width: 1280, height: 900 };
const phoneSize = { width: 390, height: 844 };

interface Watched {
  page: Page;
  /** Movements count from now on. */
  begin(): Promise<void>;
  /** There were none. */
  end(): Promise<void>;
}

export function shiftCases(shared: () => World): void {
  const watched = async (viewport = wideSize): Promise<Watched> => {
    const { newContext, client } = bound(shared());
    const context = await newContext({ viewport });
    await context.addInitScript(observe);
    const page = await context.newPage();
    await page.goto(client.studio.newUrl());
    await page.getByRole('heading', { name: 'Runs' }).waitFor();
    // Two frames: what was drawn has been laid out, and its movements were told.
    const frames = 'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))';
    return {
      page,
      begin: () => page.evaluate(`${frames}.then(() => { shifts.length = 0; })`),
      end: async () => {
        expect(await page.evaluate(`${frames}.then(() => shifts)`)).toEqual([]);
        await context.close();
      },
    };
  };

  describe('nothing moves', () => {
    /** Two runs, because one that wrote last must not jump above the other; four pages at once, because each has to wait. */
    it('while a run goes on: on its page, to its end, on a phone, in the list of runs, in its rollouts', async () => {
      const { root, client } = shared();
      using run = new Live(root, 'watched');
      using other = new Live(root, 'beside it');
      for (const each of [run, other]) each.write(1, 3);
      const id = await idOf(shared(), run.name);
      await idOf(shared(), other.name);
      const [wide, phone, list, rollouts] = await Promise.all([watched(), watched(phoneSize), watched(), watched()]);
      for (const { page } of [wide, phone]) {
        await page.goto(`${client.studio.url}/#/runs/${id}`);
        await page.locator('.chart canvas').first().waitFor();
      }
      await rollouts.page.goto(`${client.studio.url}/#/rollouts/${id}`);
      await rollouts.page.getByText('24 found').waitFor();
      await rollouts.page.locator('.table-row:not(.blank)').first().waitFor();
      const row = (name: string) => list.page.getByRole('row', { name });
      for (const { name } of [run, other]) await row(name).getByText('step 3 of 60').waitFor();
      for (const { begin } of [wide, phone, list, rollouts]) await begin();
      for (const to of [9, 40, 60]) {
        for (const each of [other, run]) each.write(each.step + 1, to);
        for (const { page } of [wide, phone]) await page.getByText(`${to} of ${run.steps}`).waitFor();
      }
      // The signals follow the rows a few seconds behind.
      for (const { page } of [wide, phone]) await page.getByRole('button', { name: /new: show/ }).waitFor();
      await rollouts.page.getByRole('button', { name: '456 new: show' }).waitFor();
      await row(run.name)
        .getByLabel(/warning/)
        .waitFor();
      for (const { end } of [list, rollouts]) await end();
      run.finish();
      for (const { page } of [wide, phone]) await page.locator('.state.finished').waitFor();
      for (const { end } of [wide, phone]) await end();
    });

    it.each(['wide', 'phone'])('in a chat while two replies stream, %s', async (width) => {
      const { client } = shared();
      const { page, begin, end } = await watched(width === 'phone' ? phoneSize : wideSize);
      await client.post('/api/chat/load', { slots: [tiny, join(shared().root, 'grpo', 'first', 'step-1')] });
      await shared().until<{ loading?: object; slots: object[] }>(
        '/api/chat/state',
        ({ loading, slots }) => loading === undefined && slots.length === 2,
      );
      await page.goto(`${client.studio.url}/#/chat`);
      await page.getByLabel('Your message').fill('Spell "abu" backward. Answer with one word.');
      await page.getByRole('button', { name: 'Send' }).click();
      await page.locator('.reply').nth(1).waitFor();
      await begin();
      await page.getByRole('group', { name: 'Which reply is better?' }).waitFor();
      await end();
    });
  });
}

async function idOf(world: World, name: string): Promise<string> {
  await world.until<{ name: string }[]>('/api/runs', (runs) => runs.some((run) => run.name === name));
  return world.idOf(name);
}
