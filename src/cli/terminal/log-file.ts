/**
 * The lines of a command in a file with the time of each, for those who look at a run the next morning.
 *
 *     using log = logLines();
 *     log.attach(join(run.folder, 'train.log'));      // what was printed before is written too
 */
import { appendFileSync } from 'node:fs';
import { onLine } from './print.ts';

export interface LineLog extends Disposable {
  attach(path: string): void;
  /** A line that is not printed here, such as the error that ends the command. */
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
      // The run itself says that its folder is gone; a log must not be what ends it.
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
