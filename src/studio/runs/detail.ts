/** One run: its options and which differ from the defaults, its checkpoints, what its metrics say, its files. */
import { existsSync, lstatSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import type { RunEntry } from '../../runs/catalogue/entry.ts';
import { type ConfigSchema, defaultValue, fieldMeta, openRun, snakeCase, trainerStateName } from '../../runs/index.ts';
import { quoted } from '../../shell.ts';
import type { ConfigValue, RunDetail, SnapshotRow } from '../api/runs.ts';
import { commandLine } from '../commands/command-line.ts';
import type { Above } from '../commands/verbs.ts';
import { shownHere } from '../http/shown.ts';
import type { Catalogue } from './catalogue.ts';
import type { MetricTable } from './metric-table.ts';
import { optional, runRow } from './row.ts';
import { orderedNames } from './series.ts';
import type { SignalNotes } from './signal-notes.ts';

export function runDetail(
  catalogue: Catalogue,
  entry: RunEntry,
  table: MetricTable,
  notes: SignalNotes,
  above: Above,
  attune: string,
): RunDetail {
  const run = openRun(entry.path);
  const { info, config } = run;
  const verb = above.verbs.find(({ name }) => `train ${name}` === info?.command);
  const canResume = verb !== undefined && entry.state !== 'running' && entry.state !== 'finished' && isSaved(entry);
  const command = info?.command ?? `train ${entry.kind}`;
  return {
    ...runRow(catalogue, entry, notes),
    config: configValues(config, verb?.schema),
    snapshots: entry.snapshots.map((snapshot) => snapshotRow(snapshot)),
    signals: notes.of(entry, table),
    ...optional({ reason: info?.reason, process: info?.process }),
    ...(info?.ended === undefined ? {} : { ended: Date.parse(info.ended) }),
    commandLine: verb === undefined ? `${attune} ${command}` : commandLine(attune, command, verb.schema, config),
    ...(canResume ? { resumeCommand: `${attune} ${command} --resume-from ${quoted(shownHere(entry.path))}` } : {}),
    canStop: entry.state === 'running' && above.launcher !== undefined,
    canResume: canResume && above.launcher !== undefined,
    versions: run.versions,
    files: filesOf(entry.path),
    hasReport: catalogue.root.find(join(entry.path, 'report.html')) !== undefined,
    metricNames: orderedNames(table.names),
  };
}

/** Whether there is a checkpoint that training can go on from. */
export const isSaved = ({ snapshots }: RunEntry) =>
  snapshots.some(({ path }) => existsSync(join(path, trainerStateName)));

/** In the order of the command's help; what the schema does not know comes last. */
function configValues(config: Record<string, unknown>, schema: ConfigSchema | undefined): ConfigValue[] {
  const known = Object.entries(schema?.shape ?? {}).map(([name, type]) => [snakeCase(name), type] as const);
  const values = known.flatMap(([name, type]): ConfigValue[] => {
    if (!(name in config)) return [];
    const { group = 'Options', description } = fieldMeta(type as never);
    const standard = defaultValue(type as never);
    const value = config[name];
    const changed = JSON.stringify(value) !== JSON.stringify(standard);
    return [{ name, value, group, description, changed, ...optional({ default: standard }) }];
  });
  const names = new Set(known.map(([name]) => name));
  const rest = Object.entries(config).filter(([name]) => !names.has(name));
  return [...values, ...rest.map(([name, value]) => ({ name, value, changed: false }))];
}

function snapshotRow({ name, path, bytes, quantised }: RunEntry['snapshots'][number]): SnapshotRow {
  const step = /-(\d+)$/.exec(name)?.[1];
  return {
    name,
    bytes,
    quantised,
    model: shownHere(path),
    modified: lstatSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0,
    ...(step === undefined ? {} : { step: Number(step) }),
  };
}

function filesOf(folder: string): RunDetail['files'] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    if (!entry.isFile()) return [];
    const found = statSync(join(folder, entry.name), { throwIfNoEntry: false });
    return found === undefined ? [] : [{ name: entry.name, bytes: found.size, modified: Math.round(found.mtimeMs) }];
  });
}
