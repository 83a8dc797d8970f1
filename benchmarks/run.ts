/**
 * Runs one benchmark: `npm run bench -- data [its options]`. A benchmark is a file here that exports `run(args)` and
 * gives readings; they are printed as JSON lines and, at the end, as a table.
 */
import { readdirSync } from 'node:fs';
// @ts-expect-error plain JavaScript that runs before any types are installed
import { asksForHelp, openingComment, sayingMistakes } from '../scripts/help.mjs';
import { nearest, UserError } from '../src/errors.ts';
import { speakTo } from '../src/spelling.ts';

/** One line of results: what was measured, and its figures. */
export interface Reading {
  name: string;
  [figure: string]: string | number;
}

export type Benchmark = (args: string[]) => AsyncIterable<Reading> | Promise<void>;

speakTo('command line');
const [name, ...args] = process.argv.slice(2).filter((arg, index) => !(index === 0 && arg === '--'));
// .js in the bundle
const extension = import.meta.filename.slice(-3);
const known = readdirSync(import.meta.dirname)
  .filter((file) => file.endsWith(extension) && file !== `run${extension}`)
  .map((file) => file.slice(0, -3));

const list = `npm run bench -- <name>; there are: ${known.join(', ')}`;

if (name !== undefined && asksForHelp([name])) {
  console.log(`${list}\nnpm run bench -- <name> --help says what one measures, and its options`);
} else if (name === undefined || !known.includes(name)) {
  const near = name === undefined ? undefined : nearest(name, known);
  if (name !== undefined)
    console.error(`No benchmark "${name}".${near === undefined ? '' : ` Did you mean "${near}"?`}`);
  console.error(list);
  process.exitCode = 2;
} else if (asksForHelp(args)) {
  console.log(openingComment(`${import.meta.dirname}/${name}${extension}`));
} else {
  await sayingMistakes(() => measure(name, args)).catch((error: unknown) => {
    if (!(error instanceof UserError)) throw error;
    console.error(error.message);
    process.exitCode = 2;
  });
}

async function measure(name: string, args: string[]): Promise<void> {
  const { run } = (await import(`./${name}${extension}`)) as { run: Benchmark };
  const running = run(args);
  if (Symbol.asyncIterator in running) {
    const readings: Reading[] = [];
    for await (const reading of running) {
      console.log(JSON.stringify({ benchmark: name, ...reading }));
      readings.push(reading);
    }
    console.table(Object.fromEntries(readings.map(({ name: row, ...figures }) => [row, figures])));
  } else await running;
}
