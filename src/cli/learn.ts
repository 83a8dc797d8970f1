/** `attune learn`: the chapters of docs/learn, each run and drawn on the reader's own machine. */
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { z } from 'zod';
import { makeFolder } from '../folder.ts';
import { resolveModel } from '../hub/hub.ts';
import { type Chapter, chapter, chapters, sourcesIn, storedReference } from '../learn/book.ts';
import type { Curve, Figure, Outcome } from '../learn/experiments/experiment.ts';
import type { Block } from '../learn/markdown.ts';
import { chapterPage, type PageResult } from '../learn/page.ts';
import { compareWith, type Reference } from '../learn/reference.ts';
import { blockLines, plainText, wrapped } from '../learn/terminal-text.ts';
import { boundsOf, legend, textChart } from '../learn/text-chart.ts';
import { dateTimeName, field, withRules } from '../runs/index.ts';
import { lineChart, toPng, toSvg } from '../runs/plots/plots.ts';
import { packageRoot } from '../tensor/engine/native.ts';
import { registerCommand } from './options/command.ts';
import { checkOutputFolder } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { typedCommand } from './options/typed.ts';
import { consoleProgress, duration } from './terminal/console.ts';
import { onInterrupt } from './terminal/interrupt.ts';
import { print, tell } from './terminal/print.ts';

const WIDTH = 100;

const learnOptions = z.object({
  chapter: field(z.number().int().positive().optional(), {
    description: 'the number of a chapter; all are listed when left out',
  }),
  seed: field(z.number().int().nonnegative().default(1), { description: 'another seed gives another run' }),
  run: field(z.boolean().default(true), { description: 'run the experiment (--no-run only shows the text)' }),
  answers: field(z.boolean().default(false), { description: 'print the answers to the questions at once' }),
  page: field(z.boolean().default(false), {
    description: 'write the chapter as an HTML page with the mathematics typeset, and open it',
  }),
  outputDir: field(z.string().default('./attune-learn'), { description: 'folder for runs, pictures and pages' }),
});

export const learnSchema = withRules(learnOptions, [
  {
    options: ['seed', 'answers', 'page', 'outputDir'],
    unread: ({ chapter: number }) => number === undefined,
    because: 'without the number of a chapter all are listed',
  },
  { options: ['seed'], unread: ({ run }) => !run, because: 'nothing is run with --no-run' },
  {
    options: ['outputDir'],
    unread: ({ run, page }) => !run && !page,
    because: 'nothing is written with --no-run, but with --page',
  },
]);

type LearnConfig = z.output<typeof learnSchema>;

export function register(program: Command): void {
  registerCommand(program, {
    name: 'learn',
    description: 'ten chapters on post-training: the equation, the code, an experiment on this machine, its curve',
    schema: learnSchema,
    words: ['chapter'],
    examples: ['attune learn', 'attune learn 5', 'attune learn 2 --page'],
    run: learn,
  });
}

async function learn(config: LearnConfig): Promise<void> {
  if (config.chapter === undefined) {
    list();
    return;
  }
  const found = chapter(config.chapter);
  const reference = storedReference(found.number);
  if (config.run || config.page) checkOutputFolder('--output-dir', config.outputDir);
  for (const block of found.blocks) {
    if (block.kind === 'image') {
      if (!config.run) {
        if (config.page) writePage(found, null, config);
        continue;
      }
      const outcome = await runExperiment(found, config);
      draw(outcome, reference);
      await writePictures(found, outcome, reference, config);
    } else await show(found, block, config);
  }
}

function list(): void {
  const all = chapters();
  print('Ten chapters: the equation, the code behind it, an experiment on this machine, and its curve.\n');
  for (const { number, title, experiment } of all)
    print(`${String(number).padStart(3)}  ${title.padEnd(64)} about ${duration(experiment.seconds)}`);
  print(`\n${typedCommand()} learn 1 runs the first; --page writes it as a page; docs/learn holds the text.`);
}

async function show(from: Chapter, block: Block, config: LearnConfig): Promise<void> {
  if (block.kind === 'folded') {
    await ask(from, block, config);
    return;
  }
  for (const line of blockLines(block, WIDTH)) print(line);
  if (block.kind === 'list') {
    for (const { path, firstLine, text } of sourcesIn(from.path, block.items))
      print(
        `\n  ${path}:${firstLine}\n${text
          .split('\n')
          .map((line) => `    ${line}`)
          .join('\n')}`,
      );
  }
  print();
}

/** A question; its answer after Enter on a terminal, at once with --answers, else not. */
async function ask(
  from: Chapter,
  { summary, blocks }: Extract<Block, { kind: 'folded' }>,
  config: LearnConfig,
): Promise<void> {
  for (const line of wrapped(`? ${plainText(summary)}`, WIDTH)) print(line);
  const interactive = process.stdin.isTTY && process.stdout.isTTY;
  if (!config.answers && !interactive) {
    print('  (--answers prints the answer)\n');
    return;
  }
  if (!config.answers) {
    const lines = createInterface({ input: process.stdin, output: process.stdout });
    await lines.question('  Enter shows the answer ').finally(() => lines.close());
  }
  for (const block of blocks) await show(from, block, config);
}

async function runExperiment({ number, experiment }: Chapter, config: LearnConfig): Promise<Outcome> {
  using interrupt = onInterrupt(() => tell('stopping'));
  const folder = chapterFolder(number, config);
  makeFolder(folder);
  const started = performance.now();
  print(`Running the experiment: about ${duration(experiment.seconds)} on two cores.`);
  const outcome = await experiment.run({
    folder,
    seed: config.seed,
    model: await resolveModel(join(packageRoot, 'models', 'tiny')),
    print,
    progress: consoleProgress(),
    signal: interrupt.signal,
  });
  print(`It took ${duration((performance.now() - started) / 1000)}.\n`);
  return outcome;
}

/** A folder of its own for each start, so that an earlier run is never mixed with this one. */
const startedAt = dateTimeName(new Date());
const chapterFolder = (number: number, { outputDir }: LearnConfig) => join(outputDir, `chapter-${number}`, startedAt);

const storedCurves = (reference: Reference | null, figure: number): Curve[] =>
  reference?.figures[figure]?.curves.map(({ name, x, mean }) => ({ name, x, y: mean })) ?? [];

/** The reader's curves beside the stored ones, on the same axes. */
function draw({ figures, findings }: Outcome, reference: Reference | null): void {
  for (const [i, figure] of figures.entries()) {
    const stored = storedCurves(reference, i);
    const size = { width: 40, height: 12, bounds: boundsOf([...figure.curves, ...stored], figure.share) };
    const own = textChart(figure.curves, { title: `${figure.title}: yours`, ...size });
    const other = stored.length === 0 ? [] : textChart(stored, { title: 'stored', ...size });
    for (const [at, line] of own.entries()) print(`${line}   ${other[at] ?? ''}`.trimEnd());
    print(`${legend(figure.curves.map(({ name }) => name))}   (x: ${figure.xLabel}, y: ${figure.yLabel})\n`);
  }
  for (const { claim, holds, numbers } of findings) print(`${holds ? '✓' : '✗'} ${claim}: ${numbers}`);
  print(`\n${sentence({ figures, findings }, reference)}\n`);
}

const sentence = (outcome: Outcome, reference: Reference | null): string =>
  reference === null ? 'No curve is stored for this chapter.' : compareWith(reference, outcome).sentence;

const chartOf = (figure: Omit<Figure, 'curves'>, curves: readonly Curve[]) =>
  lineChart({ ...figure, series: curves, smooth: false });

async function writePictures(
  from: Chapter,
  outcome: Outcome,
  reference: Reference | null,
  config: LearnConfig,
): Promise<void> {
  const folder = chapterFolder(from.number, config);
  for (const [i, figure] of outcome.figures.entries())
    writeFileSync(join(folder, `figure-${i + 1}.png`), await toPng(chartOf(figure, figure.curves)));
  print(`Pictures: ${shown(folder)}`);
  if (!config.page) return;
  const pictures = outcome.figures.map((figure, i) => {
    const stored = storedCurves(reference, i);
    return {
      own: toSvg(chartOf(figure, figure.curves)),
      stored: stored.length === 0 ? null : toSvg(chartOf(figure, stored)),
    };
  });
  writePage(from, { pictures, findings: outcome.findings, sentence: sentence(outcome, reference) }, config);
}

/** Without a result the page has the stored picture in its place. */
function writePage(from: Chapter, result: PageResult | null, config: LearnConfig): void {
  const folder = chapterFolder(from.number, config);
  makeFolder(folder);
  const page = join(folder, 'chapter.html');
  writeFileSync(page, chapterPage(from, result));
  print(`The page: ${shown(page)}\n`);
  openInBrowser(resolve(page));
}

/** Opens a file where there is a screen; the path was printed in any case. */
function openInBrowser(path: string): void {
  const opener = process.platform === 'darwin' ? 'open' : 'xdg-open';
  if (process.platform !== 'darwin' && !process.env.DISPLAY && !process.env.WAYLAND_DISPLAY) return;
  spawn(opener, [path], { stdio: 'ignore', detached: true })
    .on('error', () => {})
    .unref();
}
