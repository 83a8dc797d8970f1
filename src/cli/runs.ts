/**
 * attune runs [folder]                         every run below a folder, newest first
 * attune runs show|compare|tag|delete RUN…     shows, compares, tags or deletes runs
 */

import { statSync } from 'node:fs';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import type { Command } from 'commander';
import { suggestion, UserError } from '../errors.ts';
import { listCatalogue, runAt } from '../runs/catalogue/catalogue.ts';
import { compareRuns } from '../runs/catalogue/comparison.ts';
import type { RunEntry } from '../runs/catalogue/entry.ts';
import {
  type Doomed,
  keptSnapshots,
  planRemoval,
  planSnapshot,
  type RemovalRules,
  remove,
} from '../runs/catalogue/removal.ts';
import { chooseRuns, oldEnough, tagRun } from '../runs/catalogue/selection.ts';
import { bytesText, columnsText, runColumns, totalsText } from './options/run-table.ts';
import { shown } from './options/training.ts';
import { pickRuns } from './terminal/picker.ts';
import { print, printJson, tell } from './terminal/print.ts';

interface ListFlags {
  json?: boolean;
}

interface DeleteFlags extends ListFlags {
  folder: string;
  olderThan?: string;
  keepLast?: string;
  keepBest?: boolean;
  yes?: boolean;
}

export function register(program: Command): void {
  const runs = program
    .command('runs [folder]')
    .description('list, show, compare, tag and delete runs')
    .option('--json', 'as JSON')
    .action((folder: string | undefined, flags: ListFlags) => list(folder ?? '.', flags));
  runs
    .command('show <run>')
    .description('one run: state, metrics and snapshots')
    .option('--folder <folder>', 'where runs are looked for by name', '.')
    .option('--json', 'as JSON')
    .action((name: string, flags: ListFlags & { folder: string }, command: Command) => {
      show(only(chosen(flags.folder, [name])), asked(command, flags));
    });
  runs
    .command('compare <runs...>')
    .description('the options that differ, and the final metrics')
    .option('--folder <folder>', 'where runs are looked for by name', '.')
    .option('--json', 'as JSON')
    .action((names: string[], flags: ListFlags & { folder: string }, command: Command) => {
      const all = runsBelow(flags.folder);
      // A name that no run has is refused by the choice itself.
      for (const name of names)
        if (name.startsWith('#') && chooseRuns(all, [name]).length === 0)
          throw new UserError(`No run has the tag ${name}.`);
      compare(chosen(flags.folder, names), asked(command, flags));
    });
  runs
    .command('tag <run> [tags...]')
    .description('add tags to a run; a leading - removes one')
    .option('--folder <folder>', 'where runs are looked for by name', '.')
    .allowUnknownOption()
    .action((name: string, tags: string[], flags: { folder: string }) => {
      const unknown = tags.find((tag) => tag.startsWith('--'));
      if (unknown !== undefined)
        throw new UserError(`unknown option '${unknown}' (a tag that is taken off has one -).`);
      const run = only(chosen(flags.folder, [name]));
      print(`${run.name}: ${tagRun(run, tags).join(', ') || 'no tags'}`);
    });
  runs
    .command('delete [runs...]')
    .description('delete runs, or single snapshots as RUN/step-100, after the word DELETE was typed')
    .option('--folder <folder>', 'where to look for runs; nothing outside it is touched', '.')
    .option('--older-than <age>', 'runs that began longer ago: 30d, 12h')
    .option('--keep-last <count>', 'delete the step snapshots of the runs, except this many of the newest')
    .option(
      '--keep-best',
      'delete the step snapshots of the runs, except the best one, or the newest if no best is known',
    )
    .option('--yes', 'without asking, for scripts')
    .option('--json', 'as JSON')
    .action((names: string[], flags: DeleteFlags, command: Command) =>
      deleteRuns(names, { ...flags, ...asked(command, flags) }),
    );
}

/** The parent command has `--json` too and takes it if it comes before the verb's arguments. */
const asked = (command: Command, flags: ListFlags): ListFlags => ({
  json: flags.json ?? (command.optsWithGlobals() as ListFlags).json,
});

function only(runs: readonly RunEntry[]): RunEntry {
  const [run] = runs;
  if (run === undefined || runs.length > 1) throw new UserError(`That names ${runs.length} runs; name one.`);
  return run;
}

/** The runs below the folder that --folder names. */
function runsBelow(folder: string): ReturnType<typeof listCatalogue> {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    throw new UserError(`--folder ${folder}: there is no such folder.`);
  return listCatalogue(folder);
}

/** Runs to look at: any by its own folder, wherever it lies and through links, and those below `folder` by name or tag. */
function chosen(folder: string, names: readonly string[]): RunEntry[] {
  const all = runsBelow(folder);
  const runs = names.flatMap((name) => runAt(name) ?? chooseRuns(all, [name]));
  return [...new Map(runs.map((run) => [run.path, run])).values()];
}

function list(folder: string, flags: ListFlags): void {
  if (!statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    throw new UserError(
      `There is no folder "${folder}".${suggestion(folder, ['show', 'compare', 'tag', 'delete'])} attune runs takes a folder, or one of: show, compare, tag, delete.`,
    );
  const runs = listCatalogue(folder);
  if (flags.json) {
    printJson(runs, 2);
    return;
  }
  if (runs.length === 0) {
    print(`No runs below ${resolve(folder)}.`);
    return;
  }
  for (const line of columnsText(runColumns(runs))) print(line);
  print(`\n${totalsText(runs)}`);
}

function show(run: RunEntry, flags: ListFlags): void {
  if (flags.json) {
    printJson(run, 2);
    return;
  }
  const { metric } = run;
  for (const line of columnsText([
    ['run', run.path],
    ['kind', run.kind],
    ['model', run.model ?? ''],
    ['state', `${run.state}, step ${run.step}`],
    ['begun', run.created],
    ['metric', metric === undefined ? 'none yet' : `${metric.name} ${Number(metric.value.toPrecision(4))}`],
    ['tags', run.tags.join(', ')],
    ['logs', run.logDir ?? ''],
    ['rollouts', run.rollouts ? 'stored' : 'none'],
    ['size', bytesText(run.bytes)],
  ]))
    print(line);
  for (const { name, bytes, quantised } of run.snapshots)
    print(`  ${name}  ${bytesText(bytes)}${quantised.length > 0 ? `  with ${quantised.join(', ')}` : ''}`);
}

function compare(runs: readonly RunEntry[], flags: ListFlags): void {
  const { options, metrics } = compareRuns(runs.map(({ path }) => path));
  if (flags.json) {
    printJson({ runs: runs.map(({ path }) => path), options, metrics }, 2);
    return;
  }
  const value = (given: unknown) =>
    given === undefined ? '' : typeof given === 'number' ? String(Number(given.toPrecision(4))) : JSON.stringify(given);
  const rows = (from: Record<string, readonly unknown[]>) =>
    Object.entries(from).map(([name, values]) => [name, ...values.map(value)]);
  const head = (title: string) => [title, ...runs.map(({ name }) => name)];
  for (const line of columnsText([head('option'), ...rows(options)])) print(line);
  print();
  for (const line of columnsText([head('metric'), ...rows(metrics)])) print(line);
}

async function deleteRuns(names: string[], flags: DeleteFlags): Promise<void> {
  const all = runsBelow(flags.folder);
  const { plan, kept } = await planned(all, names, flags);
  // The output of --json is JSON alone; who is asked sees elsewhere what it is about.
  const say = flags.json ? (flags.yes ? () => {} : tell) : print;
  for (const line of kept) say(line);
  if (plan.length === 0) {
    if (flags.json) printJson({ removed: [], left: [] });
    else print('Nothing to delete.');
    return;
  }
  const bytes = plan.reduce((sum, each) => sum + each.bytes, 0);
  for (const line of columnsText(plan.map((each) => [shown(each.path), bytesText(each.bytes)]))) say(line);
  say(`${plan.length} folder${plan.length === 1 ? '' : 's'}, ${bytesText(bytes)}`);
  if (!flags.yes && !(await typedDelete())) {
    tell('Nothing was deleted.');
    if (flags.json) printJson({ removed: [], left: [] });
    return;
  }
  const { removed, left } = remove(plan);
  if (left.length > 0) process.exitCode = 1;
  if (flags.json) {
    printJson({ removed: removed.map(({ path }) => path), left }, 2);
    return;
  }
  for (const { path, why } of left) tell(`left ${shown(path)}: ${why}`);
  print(`deleted ${removed.length}, ${bytesText(removed.reduce((sum, each) => sum + each.bytes, 0))} free`);
}

interface Plan {
  plan: Doomed[];
  /** What the rules keep, a line for each run. */
  kept: string[];
}

async function planned(all: readonly RunEntry[], names: readonly string[], flags: DeleteFlags): Promise<Plan> {
  const { folder, olderThan, keepBest } = flags;
  // Not by Number(), for which the empty text of a variable that is not set is 0: that would keep none.
  if (flags.keepLast !== undefined && !/^\d+$/.test(flags.keepLast))
    throw new UserError(`--keep-last ${JSON.stringify(flags.keepLast)} is not a count.`);
  const keepLast = flags.keepLast === undefined ? undefined : Number(flags.keepLast);
  const ruled = olderThan !== undefined || keepLast !== undefined || keepBest === true;
  if (names.length === 0 && !ruled) {
    if (!process.stdin.isTTY || flags.json)
      throw new UserError('Name runs to delete, or give --older-than, --keep-last or --keep-best.');
    const marked = await pickRuns(all);
    const plan = marked.flatMap(({ run, snapshot }) =>
      snapshot === undefined ? planRemoval(folder, [run]) : [planSnapshot(folder, run, snapshot)],
    );
    return { plan, kept: [] };
  }
  const snapshots = names.filter((name) => /\/((step|checkpoint)-\d+|final|best_model)\/?$/.test(name));
  const whole = names.filter((name) => !snapshots.includes(name));
  if (ruled && snapshots.length > 0)
    throw new UserError(
      `${snapshots[0]} is a snapshot: --older-than, --keep-last and --keep-best choose among whole runs. Name runs with them, or snapshots without.`,
    );
  const chosen = names.length === 0 ? [...all] : chooseRuns(all, whole);
  const runs = olderThan === undefined ? chosen : oldEnough(chosen, olderThan);
  // A rule over all runs skips those being written; naming one is an error.
  const free = names.length === 0 ? runs.filter(({ state }) => state !== 'running') : runs;
  const rules = { keepBest, ...(keepLast === undefined ? {} : { keepLast }) };
  const plan = [
    ...planRemoval(folder, free, rules),
    ...snapshots.map((name) => {
      const [, run = '', snapshot = ''] = /^(.*)\/([^/]+)\/?$/.exec(name) ?? [];
      return planSnapshot(folder, only(chooseRuns(all, [run])), snapshot);
    }),
  ];
  return { plan, kept: keepBest || keepLast !== undefined ? free.flatMap((run) => keptText(run, rules)) : [] };
}

function keptText(run: RunEntry, rules: RemovalRules): string[] {
  const kept = keptSnapshots(run, rules);
  if (kept.length === 0) return [];
  const why = kept.some(({ isSpared }) => isSpared) ? ', the newest: without it the run could not go on' : '';
  return [`${shown(run.path)} keeps ${kept.map(({ name }) => name).join(' and ')}${why}`];
}

async function typedDelete(): Promise<boolean> {
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    // At the end of the input nobody answers, and nothing is deleted.
    const ended = new Promise<string>((resolve) => lines.once('close', () => resolve('')));
    return (await Promise.race([lines.question('Type DELETE to delete them: '), ended])).trim() === 'DELETE';
  } catch {
    return false;
  } finally {
    lines.close();
  }
}
