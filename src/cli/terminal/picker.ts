/**
 * Chooses runs and snapshots on a terminal: arrows move, space marks, letters search, Enter confirms, Escape cancels.
 */
import { emitKeypressEvents } from 'node:readline';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { visible } from './print.ts';

export interface Marked {
  run: RunEntry;
  /** The whole run if undefined. */
  snapshot?: string;
}

export interface Key {
  name?: string;
  sequence?: string;
  ctrl?: boolean;
}

/** The picker's state, without a terminal, so that tests can drive it by keys. */
export class Picker {
  readonly #items: readonly Marked[];
  readonly #marked = new Set<Marked>();
  #search = '';
  #at = 0;
  done: 'no' | 'taken' | 'left' = 'no';

  constructor(runs: readonly RunEntry[]) {
    this.#items = runs.flatMap((run): Marked[] => [
      { run },
      ...run.snapshots.map(({ name }) => ({ run, snapshot: name })),
    ]);
  }

  get visible(): Marked[] {
    const wanted = this.#search.toLowerCase();
    return this.#items.filter(({ run, snapshot }) =>
      `${run.name} ${run.kind} ${run.model ?? ''} ${run.state} ${run.tags.join(' ')} ${snapshot ?? ''}`
        .toLowerCase()
        .includes(wanted),
    );
  }

  /** A marked run includes its snapshots. */
  get marked(): Marked[] {
    const whole = new Set([...this.#marked].filter(({ snapshot }) => snapshot === undefined).map(({ run }) => run));
    return [...this.#marked].filter(({ run, snapshot }) => snapshot === undefined || !whole.has(run));
  }

  press({ name, sequence = '', ctrl }: Key): void {
    const last = this.visible.length - 1;
    if (name === 'up') this.#at = Math.max(0, this.#at - 1);
    else if (name === 'down') this.#at = Math.min(last, this.#at + 1);
    else if (name === 'space') this.#toggle();
    else if (name === 'return' || name === 'enter') this.done = 'taken';
    else if (name === 'escape' || (ctrl && name === 'c')) this.done = 'left';
    else if (name === 'backspace') this.#find(this.#search.slice(0, -1));
    else if (!ctrl && /^[\p{L}\p{N}\p{P}\p{S}]$/u.test(sequence)) this.#find(this.#search + sequence);
  }

  lines(rows: number): string[] {
    const items = this.visible;
    const from = Math.max(0, Math.min(this.#at - Math.floor(rows / 2), items.length - rows));
    const shown = items.slice(from, from + rows).map((item, i) => {
      const pointer = from + i === this.#at ? '>' : ' ';
      const mark = this.#marked.has(item) ? '[x]' : '[ ]';
      const { run, snapshot } = item;
      return `${pointer} ${mark} ${snapshot === undefined ? `${run.name}  ${run.kind}  ${run.state}` : `    ${snapshot}`}`;
    });
    return [`search: ${this.#search}   (arrows, space marks, Enter goes on, Escape leaves)`, ...shown.map(visible)];
  }

  #toggle(): void {
    const item = this.visible[this.#at];
    if (item !== undefined && !this.#marked.delete(item)) this.#marked.add(item);
  }

  #find(text: string): void {
    this.#search = text;
    this.#at = 0;
  }
}

export async function pickRuns(runs: readonly RunEntry[]): Promise<Marked[]> {
  const picker = new Picker(runs);
  const { stdin, stderr } = process;
  let drawn = 0;
  const draw = () => {
    // a terminal that does not know its size says 0
    const width = (stderr.columns || 80) - 1;
    const lines = picker.lines(Math.max(3, (stderr.rows || 24) - 3)).map((line) => line.slice(0, width));
    stderr.write(`${drawn > 0 ? `\u001b[${drawn}A` : ''}\r\u001b[J${lines.join('\n')}\n`);
    drawn = lines.length;
  };
  emitKeypressEvents(stdin);
  stdin.setRawMode(true);
  stdin.resume();
  draw();
  try {
    await new Promise<void>((finish) => {
      const onKey = (_: unknown, key: Key) => {
        picker.press(key);
        draw();
        if (picker.done === 'no') return;
        stdin.removeListener('keypress', onKey);
        finish();
      };
      stdin.on('keypress', onKey);
    });
  } finally {
    stdin.setRawMode(false);
    stdin.pause();
  }
  return picker.done === 'taken' ? picker.marked : [];
}
