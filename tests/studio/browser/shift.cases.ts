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
import { tiny, type World } from './world.ts';

/** A run that this process writes as a training does. */
class Live implements Disposable {
  readonly name: string;
  readonly folder: string;
  readonly steps = 60;
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

/** Installed before the page's own scripts. */
const observe = `
  globalThis.shifts = [];
  const name = (node) => node?.nodeType === 1 ? node.tagName.toLowerCase() + '.' + node.className : '#' + node?.textContent;
  new PerformanceObserver((list) => {
    for (const { value, sources } of list.getEntries())
      shifts.push(value.toFixed(5) + ' ' + sources.map(({ node, previousRect: a, currentRect: b }) =>
        name(node) + ' ' + [a.x, a.y, a.width, a.height] + ' → ' + [b.x, b.y, b.width, b.height]).join('; '));
  }).observe({ type: 'layout-shift' });`;

export function shiftCases(shared: () => World): void {
  /** A page whose movements are counted from the moment that `begin` is called. */
  const watched = async (phone: boolean): Promise<{ page: Page; begin(): Promise<void>; end(): Promise<void> }> => {
    const { browser, client } = shared();
    const context = await browser.newContext({
      viewport: phone ? { width: 390, height: 844 } : { width: 1280, height: 900 },
    });
    context.setDefaultTimeout(30_000);
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
    it.each(['wide', 'phone'])(
      'on a run that goes on, to its end, %s',
      async (width) => {
        const { root, client } = shared();
        using run = new Live(root, `watched ${width}`);
        run.write(1, 3);
        const id = await idOf(shared(), run.name);
        const { page, begin, end } = await watched(width === 'phone');
        await page.goto(`${client.studio.url}/#/runs/${id}`);
        await page.locator('.chart canvas').first().waitFor();
        await begin();
        for (let step = 4; step <= run.steps; step += 8) {
          run.write(step, Math.min(run.steps, step + 7));
          await page.getByText(`${Math.min(run.steps, step + 7)} of ${run.steps}`).waitFor();
        }
        // The signals follow the rows a few seconds behind.
        await page.getByRole('button', { name: /new: show/ }).waitFor();
        run.finish();
        await page.locator('.state.finished').waitFor();
        await end();
      },
      120_000,
    );

    it('in the list of runs while two go on', async () => {
      const { root } = shared();
      using first = new Live(root, 'list one');
      using second = new Live(root, 'list two');
      for (const run of [first, second]) run.write(1, 3);
      await idOf(shared(), second.name);
      const { page, begin, end } = await watched(false);
      for (const run of [first, second])
        await page.getByRole('row', { name: run.name }).getByText('step 3 of 60').waitFor();
      await begin();
      for (const [run, to] of [
        [first, 20],
        [second, 40],
        [first, 55],
      ] as const) {
        run.write(run === second ? 4 : to === 20 ? 4 : 21, to);
        await page.getByRole('row', { name: run.name }).getByText(`step ${to} of 60`).waitFor();
      }
      await page
        .getByRole('row', { name: first.name })
        .getByLabel(/warning/)
        .waitFor();
      await end();
    }, 120_000);

    it('in the rollouts of a run that goes on', async () => {
      const { root, client } = shared();
      using run = new Live(root, 'rollouts live');
      run.write(1, 3);
      const { page, begin, end } = await watched(false);
      await page.goto(`${client.studio.url}/#/rollouts/${await idOf(shared(), run.name)}`);
      await page.getByText('24 found').waitFor();
      await page.locator('.table-row:not(.blank)').first().waitFor();
      await begin();
      run.write(4, 30);
      await page.getByRole('button', { name: '216 new: show' }).waitFor();
      await end();
    }, 120_000);

    it.each(['wide', 'phone'])(
      'in a chat while two replies stream, %s',
      async (width) => {
        const { client } = shared();
        const { page, begin, end } = await watched(width === 'phone');
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
      },
      120_000,
    );
  });
}

async function idOf(world: World, name: string): Promise<string> {
  await world.until<{ name: string }[]>('/api/runs', (runs) => runs.some((run) => run.name === name));
  return world.idOf(name);
}
