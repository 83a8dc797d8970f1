/**
 * `attune doctor`: what is installed on this machine, and a remedy for each problem. Exit code 1 if attune cannot run.
 */
import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { readPlace } from '../dist/place.ts';
import { askedThreads } from '../tensor/engine/threads.ts';
import { blasOf, diagnose, type Findings, type Problem } from './machine/diagnosis.ts';
import { type Addon, prepareEngine } from './machine/engine.ts';
import { hasNvidiaCard, readCpu, readHubCache, readMemory } from './machine/machine.ts';
import type { EngineFacts } from './machine/probe.ts';
import { print, printJson } from './terminal/print.ts';

export function register(program: Command): void {
  program
    .command('doctor')
    .description('checks this machine, and suggests a fix for each problem')
    .option('--json', 'print it as JSON')
    .option('--dist', 'checks the ranks of a world against each other: attune launch --nproc 2 -- doctor --dist')
    .action(async (options: { json?: boolean; dist?: boolean }) => {
      if (options.dist) {
        process.exitCode = await doctorDist(options.json ?? false);
        return;
      }
      const findings = await examine();
      const problems = diagnose(findings);
      const usable = problems.every((problem) => problem.severity !== 'error');
      if (options.json) printJson({ usable, ...findings, blas: blasOf(findings), problems }, 2);
      else print(describe(findings, problems));
      process.exitCode = usable ? 0 : 1;
    });
}

async function doctorDist(json: boolean): Promise<number> {
  await prepareEngine();
  // Imported here: it loads the engine, which the plain doctor must be able to do without.
  const { describeCluster, examineCluster } = await import('./machine/cluster.ts');
  const { facts, isFirst } = await examineCluster();
  if (isFirst && json) printJson(facts, 2);
  else if (isFirst) print(describeCluster(facts));
  return facts.unequal.length === 0 ? 0 : 1;
}

async function examine(): Promise<Findings> {
  const threads = askedThreads(process.env);
  const findings: Findings = {
    node: process.versions.node,
    arch: process.arch,
    cpu: readCpu(),
    memory: readMemory(),
    hub: readHubCache(),
    nvidiaCard: hasNvidiaCard(),
    ...(threads === undefined ? {} : { threadsAsked: threads }),
    ranks: readPlace(process.env)?.localSize ?? 1,
  };
  let addon: Addon | undefined;
  try {
    addon = await prepareEngine();
  } catch (error) {
    return { ...findings, buildError: (error as Error).message };
  }
  return { ...findings, ...(addon ? { addon } : {}), ...(await probe()) };
}

/** Loads the engine in a separate process, in which OpenBLAS prints the kernels that it chose. */
function probe(): Promise<Pick<Findings, 'engine' | 'engineError' | 'openblasCore'>> {
  const script = fileURLToPath(
    new URL(import.meta.url.endsWith('.ts') ? './machine/probe.ts' : './machine/probe.js', import.meta.url),
  );
  return new Promise((resolve) => {
    const child = spawn(process.execPath, [script], {
      env: { ...process.env, OPENBLAS_VERBOSE: '2' },
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    child.on('error', (error) => resolve({ engineError: error.message }));
    child.on('close', (status, signal) => {
      const core = /^Core: (\S+)/m.exec(errors + output)?.[1];
      const facts = output.slice(Math.max(0, output.indexOf('{')));
      if (status === 0) resolve({ engine: JSON.parse(facts) as EngineFacts, ...(core ? { openblasCore: core } : {}) });
      else resolve({ engineError: causeOf(errors) ?? `it ended with ${signal ?? `exit code ${status}`}` });
    });
  });
}

/** The error message of a Node process that ended, without source excerpt and stack. */
function causeOf(errors: string): string | undefined {
  return /^\w*Error(?: \[\w+\])?: (.*)$/m.exec(errors)?.[1];
}

function describe(findings: Findings, problems: Problem[]): string {
  const { addon, engine, cpu, memory, hub } = findings;
  const blas = blasOf(findings);
  const features = Object.entries(cpu.features).map(
    ([name, has]) => `${has ? '' : 'no '}${FEATURE_NAMES[name] ?? name}`,
  );
  const rows: [string, string][] = [
    ['Node', findings.node],
    [
      'libtorch',
      addon ? `${addon.version} in ${addon.lib} (${SOURCES[addon.source]})` : (engine?.libtorch ?? 'not found'),
    ],
    [
      'engine',
      engine
        ? (addon?.path ?? process.env.ATTUNE_ADDON ?? 'loaded')
        : findings.buildError
          ? 'not built'
          : 'does not load',
    ],
    ['CPU', `${cpu.model}, ${cpu.cores} ${cpu.cores === 1 ? 'core' : 'cores'} (${features.join(', ')})`],
    ['memory', `${gib(memory.availableBytes)} available of ${gib(memory.totalBytes)}`],
  ];
  if (engine) {
    const fit = blas.fits === undefined ? '' : blas.fits ? ', fits this CPU' : ', does not fit this CPU';
    rows.push([
      'BLAS',
      `${blas.name}${blas.core ? `, kernels for ${blas.core}` : ''}${fit}${blas.path ? ` (${blas.path})` : ''}`,
    ]);
    rows.push(['threads', String(engine.threads)]);
    const cards = engine.cards.map(
      (card, index) => `cuda:${index} ${card.name}, ${gib(card.freeBytes)} free of ${gib(card.totalBytes)}`,
    );
    rows.push([
      'CUDA',
      (addon?.cuda ?? engine.cuda)
        ? cards.join('\n') || 'built in, no card seen'
        : addon?.libtorchHasCuda
          ? 'not in this engine'
          : 'not in this libtorch',
    ]);
  }
  rows.push([
    'hub cache',
    `${hub.folder} (${hub.exists ? gib(hub.sizeBytes) : 'not made yet'}${hub.freeBytes === undefined ? '' : `, ${gib(hub.freeBytes)} free`})`,
  ]);
  const table = rows.map(([name, value]) => name.padEnd(11) + value.replaceAll('\n', `\n${' '.repeat(11)}`));
  const advice = problems.flatMap((problem) => [
    '',
    `${problem.severity}: ${problem.what}`,
    `  remedy: ${problem.remedy.replaceAll('\n', '\n  ')}`,
  ]);
  const errors = problems.filter((problem) => problem.severity === 'error').length;
  const verdict =
    problems.length === 0 ? 'All well.' : errors > 0 ? 'attune cannot run here yet.' : 'attune runs here.';
  return [...table, ...advice, '', verdict].join('\n');
}

const FEATURE_NAMES: Record<string, string> = {
  avx2: 'AVX2',
  avx512: 'AVX-512',
  amx: 'AMX',
  asimd: 'ASIMD',
  sve: 'SVE',
};

const SOURCES: Record<Addon['source'], string> = {
  environment: 'ATTUNE_LIBTORCH',
  python: "python3's torch",
  system: "the system's",
  cache: "attune's cache",
};

function gib(bytes: number): string {
  return `${(bytes / 2 ** 30).toFixed(1)} GiB`;
}
