/**
 * What the browser's cases share: real runs that were trained a moment ago, one studio over them, one browser. What the
 * page must never do is noted as it happens: errors in its console, requests to another host.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core';
import { whatTrainingOffers } from '../../../src/cli/studio.ts';
import { schemaSql } from '../../../src/runs/store/schema.ts';
import type { RunDetail, RunRow } from '../../../src/studio/api.ts';
import {
  type Client,
  makeRun,
  openStudio,
  removeFolder,
  temporaryFolder,
} from '../../../src/studio/studio.test-support.ts';
import { preferenceRows } from '../../../src/tasks/index.ts';
import { trainPolicy } from '../../../src/trainers/policy/policy.ts';

const repository = join(import.meta.dirname, '../../..');
export const tiny = join(repository, 'models/tiny');

/** How long a page is given to show something: a machine may have much else to do. */
export const patienceMs = 240_000;

/** Sets a flag if a page takes it for HTML. A file's name may hold it. */
export const payload = '<img src=x onerror=globalThis.hacked=1>';

export class World implements AsyncDisposable {
  readonly root: string;
  readonly client: Client;
  readonly browser: Browser;
  readonly context: BrowserContext;
  readonly page: Page;
  /** Console errors, exceptions and requests to elsewhere, of all pages of the context. */
  readonly problems: string[] = [];

  private constructor(root: string, client: Client, browser: Browser, context: BrowserContext, page: Page) {
    this.root = root;
    this.client = client;
    this.browser = browser;
    this.context = context;
    this.page = page;
    const { url } = client.studio;
    context.on('request', (request) => {
      const isOwn = request.url().startsWith(`${url}/`) || request.url().startsWith('data:');
      if (!isOwn) this.problems.push(`asked ${request.url()}`);
    });
    context.on('console', (message) => {
      if (['error', 'warning'].includes(message.type()))
        this.problems.push(`${message.type()}: ${message.text()} ${message.location().url}`);
    });
    context.on('weberror', (error) => this.problems.push(`exception: ${error.error().message}`));
  }

  static async open(executablePath: string): Promise<World> {
    const root = temporaryFolder();
    const launched = chromium.launch({ executablePath, timeout: patienceMs, args: ['--no-sandbox', '--disable-gpu'] });
    await makeRuns(root);
    const client = await openStudio({
      root,
      page: join(repository, 'dist/studio-page'),
      above: {
        ...whatTrainingOffers(),
        launcher: { file: process.execPath, args: [join(repository, 'bin/attune.mjs')] },
      },
      modelFolders: [join(repository, 'models')],
    });
    const browser = await launched;
    const context = await patientContext(browser, { viewport: { width: 1280, height: 900 } });
    const world = new World(root, client, browser, context, await context.newPage());
    await world.page.goto(client.studio.newUrl());
    await world.page.getByRole('heading', { name: 'Runs' }).waitFor();
    return world;
  }

  /** A window of its own, with no cookie of the others. */
  newContext(options?: BrowserContextOptions): Promise<BrowserContext> {
    return patientContext(this.browser, options);
  }

  /** Goes to a place of the page, `runs/…?step=2`, as a link does. */
  async go(place: string): Promise<void> {
    await this.page.goto(`${this.client.studio.url}/#/${place}`);
  }

  async idOf(name: string): Promise<string> {
    const runs = (await this.client.get('/api/runs')).json as { id: string; name: string }[];
    return runs.find((run) => run.name === name)?.id ?? '';
  }

  /** Asks the studio until the answer fits. */
  async until<T>(path: string, fits: (answer: T) => boolean, timeoutMs = patienceMs): Promise<T> {
    for (const end = Date.now() + timeoutMs; ; await new Promise((resolve) => setTimeout(resolve, 100))) {
      const { json } = await this.client.get(path);
      if (fits(json as T)) return json as T;
      if (Date.now() > end) throw new Error(`${path}: not in time; it says ${JSON.stringify(json).slice(0, 1000)}`);
    }
  }

  /** Trainings outlive a studio: what a failed case left running is stopped. */
  async #stopAll(): Promise<void> {
    const running = ((await this.client.get('/api/runs')).json as RunRow[]).filter(({ state }) => state === 'running');
    for (const { id } of running) {
      await this.client.post(`/api/runs/${id}/stop`);
      await this.until<RunDetail>(`/api/runs/${id}`, ({ state }) => state !== 'running');
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.browser.close();
    await this.#stopAll();
    await this.client.studio.close();
    removeFolder(this.root);
  }
}

async function patientContext(browser: Browser, options?: BrowserContextOptions): Promise<BrowserContext> {
  const context = await browser.newContext(options);
  context.setDefaultTimeout(patienceMs);
  return context;
}

/** Two trainings that differ in one option, a dataset of pairs, and a run and a dataset of a hostile stranger. */
async function makeRuns(root: string): Promise<void> {
  const shared = {
    ...{ model: tiny, task: 'number_sorting:1,spell_backward:1', algorithm: 'grpo' as const, maxSteps: 3, seed: 5 },
    ...{ batchSize: 2, gradAccum: 1, groupSize: 4, maxNewTokens: 24, evalNumPrompts: 2, evalSteps: 3, saveSteps: 1 },
    ...{ saveTokens: true, outputDir: join(root, 'grpo'), logDir: join(root, 'logs') },
  };
  await trainPolicy({ ...shared, runName: 'first', lr: 2e-4 });
  await trainPolicy({ ...shared, runName: 'second', lr: 1e-4, saveSteps: 3 });
  const rows = [...preferenceRows({ tasks: 'chain_sum:1', count: 12, seed: 3 })];
  writeRows(join(root, 'pairs.jsonl'), rows);
  writeRows(join(root, `${payload}.jsonl`), [{ prompt: payload, chosen: payload, rejected: `${payload}!` }]);
  const folder = makeRun(root, payload, {
    config: { model: payload },
    rows: [{ step: 1, time: 1, [`train/${payload}`]: 1 }],
  });
  const info = { name: payload, command: 'train policy', status: 'finished', step: 1, rollouts: 'rollouts.db' };
  writeFileSync(join(folder, 'run.json'), JSON.stringify({ ...info, created: '2026-01-01T00:00:00.000Z' }));
  writeFileSync(join(folder, 'tags.json'), JSON.stringify([payload]));
  writeFileSync(join(folder, 'train.log'), `${payload}\n`);
  mkdirSync(join(folder, 'step-1'));
  writeFileSync(join(folder, 'step-1', 'trainer_state.json'), '{}');
  using database = new DatabaseSync(join(folder, 'rollouts.db'));
  database.exec(schemaSql);
  database
    .prepare('insert into rollouts values (1, 1, 0, 0, 0, ?, ?, 1, 0)')
    .run(`prompt ${payload}`, `response ${payload}`);
}

const writeRows = (path: string, rows: readonly object[]) =>
  writeFileSync(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
