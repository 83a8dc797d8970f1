/**
 * Writes a command's lines to a log file, each with its time.
 *
 *     using log = logLines();
 *     log.attach(join(run.folder, 'train.log'));      // what was printed before is written too
 */
import { appendFileSync } from 'node:fs';
import { onLine } from './print.ts';

export interface LineLog extends Disposable {
  attach(path: string): void;
  /** Adds a line that is not printed, such as the error that ends the command. */
  add(text: string): void;
}

export function logLines(): LineLog {
  let path: string | undefined;
  let waiting = '';
  const add = (text: string) => {
    const time = new Date().toISOString();
    for (const line of text.split('\n')) if (line.trim() !== '') waiting += `${time}  ${line}\n`;
    if (path === undefined) return;
    const lines = waiting;
    waiting = '';
    try {
      appendFileSync(path, lines);
    } catch {
      // The log must not end a run; the run itself reports that its folder is gone.
      path = undefined;
    }
  };
  const dispose = onLine(add);
  return {
    add,
    attach(to) {
      path = to;
      add('');
    },
    [Symbol.dispose]: dispose,
  };
}
