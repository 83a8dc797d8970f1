/**
 * The replications: `npm run replicate -- over-optimisation` runs all jobs of one (those whose outcome is there are not run
 * again), prints its findings and draws its picture. Without a name it lists them.
 *
 *     npm run replicate -- zero --seeds 1 --results my-results
 *     npm run replicate -- --jobs                               every job as a line, for xargs -P
 *     npm run replicate -- zero --job 'can 1'                   one of them
 *     npm run replicate -- --docs                               docs/replications.md from the results in the repository
 */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { UserError } from '../../src/index.ts';
import { grid, toPng } from '../../src/runs/plots/plots.ts';
import { writeDocument } from './document.ts';
import { addOutcome, readOutcomes } from './results.ts';
import { studies } from './studies.ts';
import { type Lab, Outcomes, type Study } from './study.ts';

const root = join(import.meta.dirname, '../..');

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    results: { type: 'string', default: 'attune-replications' },
    work: { type: 'string' },
    seeds: { type: 'string' },
    job: { type: 'string' },
    jobs: { type: 'boolean', default: false },
    docs: { type: 'boolean', default: false },
  },
});

/** `condition seed`. */
const jobsOf = (study: Study) =>
  (flags.seeds?.split(',').map(Number) ?? study.seeds).flatMap((seed) =>
    study.conditions.map((condition) => `${condition} ${seed}`),
  );

async function main([name]: readonly string[]): Promise<void> {
  if (flags.docs) return writeDocument();
  const chosen =
    name === undefined || name === 'all'
      ? studies
      : studies.filter((study, i) => study.name === name || String(i + 1) === name);
  if (chosen.length === 0)
    throw new UserError(`No replication "${name}"; there are: ${studies.map((study) => study.name).join(', ')}.`);
  if (flags.jobs) {
    for (const study of chosen) for (const job of jobsOf(study)) console.log(`${study.name}\t${job}`);
  } else if (name === undefined) {
    for (const [i, study] of studies.entries())
      console.log(`${i + 1}  ${study.name.padEnd(20)} ${study.title} (${jobsOf(study).length} jobs)`);
  } else if (flags.job !== undefined) await runJob(chosen[0] as Study, flags.job);
  else
    for (const study of chosen) {
      for (const job of jobsOf(study)) await runJob(study, job);
      await show(study);
    }
}

async function runJob(study: Study, job: string): Promise<void> {
  const at = job.lastIndexOf(' ');
  const [condition, seed] = [job.slice(0, at), Number(job.slice(at + 1))];
  if (!study.conditions.includes(condition))
    throw new UserError(`${study.name} has no condition "${condition}"; there are: ${study.conditions.join('; ')}.`);
  if (readOutcomes(flags.results, study.name).some((done) => done.condition === condition && done.seed === seed))
    return;
  const work = flags.work ?? join(flags.results, 'work');
  mkdirSync(join(work, study.name), { recursive: true });
  const folder = mkdtempSync(join(work, study.name, 'job-'));
  const started = performance.now();
  try {
    const shared: Lab['shared'] = (name, make) => sharedFolder(join(work, study.name, name), make);
    const values = await study.run(condition, { seed, folder, model: join(root, 'models/tiny'), shared });
    const seconds = Math.round((performance.now() - started) / 100) / 10;
    addOutcome(flags.results, study.name, { condition, seed, seconds, values });
    console.log(`${study.name}: ${condition}, seed ${seed}: ${seconds} s`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Made by the first job that asks; the others wait for it. The lock holds the maker's process id, so that a dead one counts for nothing. */
async function sharedFolder(path: string, make: (folder: string) => Promise<void>): Promise<string> {
  const lock = `${path}.lock`;
  while (!existsSync(path)) {
    if (!locked(lock)) {
      await setTimeout(200);
      continue;
    }
    const making = `${path}.${process.pid}`;
    try {
      mkdirSync(making, { recursive: true });
      await make(making);
      renameSync(making, path);
    } finally {
      rmSync(making, { recursive: true, force: true });
      rmSync(lock, { force: true });
    }
  }
  return path;
}

/** Takes the lock unless a living process has it. */
function locked(lock: string): boolean {
  try {
    writeFileSync(lock, String(process.pid), { flag: 'wx' });
    return true;
  } catch {
    const owner = existsSync(lock) ? Number(readFileSync(lock, 'utf8')) : 0;
    if (owner > 0 && !isAlive(owner)) rmSync(lock, { force: true });
    return false;
  }
}

function isAlive(id: number): boolean {
  try {
    return process.kill(id, 0);
  } catch {
    return false;
  }
}

async function show(study: Study): Promise<void> {
  const { findings, charts } = study.report(new Outcomes(readOutcomes(flags.results, study.name)));
  for (const { claim, holds, numbers } of findings) console.log(`${holds ? '✓' : '✗'} ${claim}: ${numbers}`);
  const picture = join(flags.results, study.name, 'picture.png');
  writeFileSync(picture, await toPng(grid([...charts], { columns: 2, title: study.title })));
  console.log(picture);
}

try {
  await main(positionals);
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
