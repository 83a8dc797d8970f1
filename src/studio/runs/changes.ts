/** Changes to runs: stop, tag, delete. */
import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';
import { z } from 'zod';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { type Doomed, planRemoval, planSnapshot, remove } from '../../runs/catalogue/removal.ts';
import { tagRun } from '../../runs/catalogue/selection.ts';
import { lockHolder, openRun } from '../../runs/index.ts';
import { ApiError } from '../../serve/api-error.ts';
import type { DeleteAnswer, DeletePlan, StopAnswer, TagAnswer } from '../api/runs.ts';
import { parsed } from '../http/router.ts';
import type { Catalogue } from './catalogue.ts';
import { conflict } from './resume.ts';

/** Processes that were asked to stop: a second interrupt would make them leave at once, without saving. */
const asked = new Set<string>();

/** As Ctrl-C does: the run saves a checkpoint and ends. */
export function stopRun({ path, name }: RunEntry): StopAnswer {
  const lock = lockHolder(path);
  if (!lock?.isLive) throw conflict(`${name} is not running.`);
  const { pid, host, started = '' } = lock.holder;
  if (host !== hostname()) throw conflict(`${name} runs on ${host}: stop it there.`);
  const key = `${pid} ${started}`;
  if (asked.has(key)) return { asked: false };
  // Only the process that run.json names too: a lock alone could name any process.
  if (openRun(path).info?.process?.pid !== pid) throw conflict(`${name} has a lock of another process.`);
  process.kill(pid, 'SIGINT');
  asked.add(key);
  return { asked: true };
}

const tagRequest = z.object({ tags: z.array(z.string()).max(32) });

export function tag(catalogue: Catalogue, entry: RunEntry, body: unknown): TagAnswer {
  const tags = tagRun(entry, parsed(tagRequest, body).tags);
  catalogue.changed();
  return { tags };
}

const askRequest = z.object({
  ids: z.array(z.string()).max(1000).default([]),
  snapshots: z
    .array(z.object({ id: z.string(), name: z.string() }))
    .max(1000)
    .default([]),
});
const confirmRequest = z.object({ confirm: z.string(), word: z.string() });

/** Deletes in two steps: a plan that is shown, then its removal by its id and the word DELETE. */
export class Removals {
  readonly #catalogue: Catalogue;
  readonly #plans = new Map<string, Doomed[]>();

  constructor(catalogue: Catalogue) {
    this.#catalogue = catalogue;
  }

  answer(body: unknown): DeletePlan | DeleteAnswer {
    return typeof body === 'object' && body !== null && 'confirm' in body ? this.#remove(body) : this.#plan(body);
  }

  #plan(body: unknown): DeletePlan {
    const { ids, snapshots } = parsed(askRequest, body);
    const root = this.#catalogue.root.path;
    this.#catalogue.changed();
    const plan = [
      ...planRemoval(
        root,
        ids.map((id) => this.#catalogue.find(id)),
      ),
      ...snapshots.map(({ id, name }) => planSnapshot(root, this.#catalogue.find(id), name)),
    ];
    if (plan.length === 0) throw new ApiError(400, 'Name runs or snapshots to delete.', { code: 'invalid' });
    const confirm = randomBytes(12).toString('hex');
    this.#plans.clear();
    this.#plans.set(confirm, plan);
    const shown = plan.map(({ path, bytes }) => ({ path: this.#catalogue.root.shown(path), bytes }));
    return { paths: shown, bytes: plan.reduce((sum, { bytes }) => sum + bytes, 0), confirm };
  }

  #remove(body: unknown): DeleteAnswer {
    const { confirm, word } = parsed(confirmRequest, body);
    const plan = this.#plans.get(confirm);
    if (plan === undefined) throw conflict('This was not the last thing shown: look at the list again.');
    if (word !== 'DELETE') throw new ApiError(400, 'Type the word DELETE.', { code: 'invalid', param: 'word' });
    this.#plans.delete(confirm);
    const { removed, left } = remove(plan);
    this.#catalogue.changed();
    const { root } = this.#catalogue;
    return {
      removed: removed.map(({ path }) => root.shown(path)),
      left: left.map(({ path, why }) => ({ path: root.shown(path), why })),
      bytes: removed.reduce((sum, { bytes }) => sum + bytes, 0),
    };
  }
}
