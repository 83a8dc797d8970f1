/**
 * What the metrics of runs say, in words. For one run it is worked out when asked; for the list of runs only the number
 * of warnings is told, once the run's metrics have been looked through in the background, one run after another.
 */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import type { SignalNote } from '../api/runs.ts';
import type { Above } from '../commands/verbs.ts';
import type { MetricTable, MetricTables } from './metric-table.ts';

/** The metrics that each explanation is about. */
const about: Readonly<Record<string, string[]>> = {
  'first-loss': ['train/policy_loss', 'train/first_policy_loss', 'train/loss'],
  'falling-reward': ['train/score', 'train/reward'],
  'equal-groups': ['train/zero_spread', 'train/zero_spread_right', 'train/zero_spread_wrong', 'train/accuracy'],
  'kl-drift': ['train/kl'],
  'entropy-collapse': ['train/entropy'],
  'length-growth': ['train/length_mean'],
  'cut-off': ['train/ended', 'train/length_max'],
  unfinished: ['train/episodes_done', 'train/turns'],
  truncated: ['train/cut_mass'],
  'over-optimised': ['train/reward', 'eval/accuracy', 'eval/kl'],
};

export class SignalNotes {
  readonly #signals: Above['signals'];
  readonly #tables: MetricTables;
  readonly #known = new Map<string, { signature: string; warnings: number }>();
  readonly #waiting = new Map<string, string>();
  #isWorking = false;

  constructor({ signals }: Above, tables: MetricTables) {
    this.#signals = signals;
    this.#tables = tables;
  }

  of({ kind }: RunEntry, table: MetricTable): SignalNote[] {
    if (kind !== 'policy') return [];
    return this.#signals?.(table.columns()).map((note) => ({ ...note, metrics: about[note.kind] ?? [] })) ?? [];
  }

  /** The number of warnings as far as it is known; it is counted anew where the metrics have grown. */
  warnings({ kind, path }: RunEntry): number | undefined {
    if (kind !== 'policy' || this.#signals === undefined) return undefined;
    const metrics = join(path, 'metrics.jsonl');
    const found = statSync(metrics, { throwIfNoEntry: false });
    const signature = `${found?.size} ${found?.mtimeMs}`;
    const known = this.#known.get(metrics);
    if (found !== undefined && known?.signature !== signature) {
      this.#waiting.set(metrics, signature);
      void this.#work();
    }
    return known?.warnings;
  }

  async #work(): Promise<void> {
    if (this.#isWorking) return;
    this.#isWorking = true;
    for (const [path, signature] of this.#waiting) {
      this.#waiting.delete(path);
      const table = await this.#tables.of(path);
      const notes = this.#signals?.(table.columns()) ?? [];
      this.#known.set(path, { signature, warnings: notes.filter(({ level }) => level === 'warning').length });
    }
    this.#isWorking = false;
  }
}
