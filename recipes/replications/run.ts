/** The replications: `npm run replicate`. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { duration } from '../../src/cli/terminal/console.ts';
import { AttuneError, UserError } from '../../src/index.ts';
import { grid, toPng } from '../../src/runs/plots/plots.ts';
import { speakTo } from '../../src/spelling.ts';
import { writeDocument } from './document.ts';
import { addOutcome, readOutcomes } from './results.ts';
import { sharedFolder } from './shared-folder.ts';
import { studies } from './studies.ts';
import { type Outcome, Outcomes, type Study } from './study.ts';

const usage = `npm run replicate                      lists the replications
npm run replicate -- NAME              runs all jobs of one, prints its findings and draws its picture; \`all\` runs all

--seeds 4,5,6      these seeds instead of the study's own
--results FOLDER   where outcomes are kept, and found again: what is there is not run again (attune-replications)
--work FOLDER      where jobs put models and data while they run (FOLDER/work in the results)
--jobs             lists every job as a line, to share them among processes: replicate NAME --job JOB
--job 'can 1'      one job: a condition and a seed
--docs             writes docs/replications.md from the results in the repository`;

const root = join(import.meta.dirname, '../..');
speakTo('command line');

interface Flags {
  results: string;
  work?: string;
  seeds?: string;
  job?: string;
  jobs: boolean;
  docs: boolean;
  help: boolean;
}

function parse(): { flags: Flags; names: string[] } {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        results: { type: 'string', default: 'attune-replications' },
        work: { type: 'string' },
        seeds: { type: 'string' },
        job: { type: 'string' },
        jobs: { type: 'boolean', default: false },
        docs: { type: 'boolean', default: false },
        help: { type: 'boolean', default: false },
      },
    });
    return { flags: values, names: positionals };
  } catch (error) {
    throw new UserError(`${(error as Error).message}\n\n${usage}`);
  }
}

function seedsOf(study: Study, given: string | undefined): readonly number[] {
  const seeds = given?.split(',').map(Number) ?? study.seeds;
  if (!seeds.every((seed) => Number.isSafeInteger(seed) && seed >= 0))
    throw new UserError(`--seeds is a list of whole numbers such as 4,5,6, not "${given}".`);
  return seeds;
}

/** `condition seed`. */
const jobsOf = (study: Study, { seeds }: Flags) =>
  seedsOf(study, seeds).flatMap((seed) => study.conditions.map((condition) => `${condition} ${seed}`));

async function main(): Promise<void> {
  const { flags, names } = parse();
  if (flags.help) return console.log(usage);
  if (flags.docs) return writeDocument();
  const [name] = names;
  const chosen =
    name === undefined || name === 'all'
      ? studies
      : studies.filter((study, i) => study.name === name || String(i + 1) === name);
  if (chosen.length === 0)
    throw new UserError(`No replication "${name}"; there are: ${studies.map((study) => study.name).join(', ')}.`);
  if (flags.jobs) {
    for (const study of chosen) for (const job of jobsOf(study, flags)) console.log(`${study.name}\t${job}`);
  } else if (name === undefined) {
    for (const [i, study] of studies.entries())
      console.log(`${i + 1}  ${study.name.padEnd(20)} ${study.title} (${jobsOf(study, flags).length} jobs)`);
    console.log('\nnpm run replicate -- --help tells more.');
  } else if (flags.job !== undefined) await runJob(chosen[0] as Study, flags.job, flags);
  else for (const study of chosen) await runStudy(study, flags);
}

/** All jobs of a study, with the time left guessed from those before; then its report. */
async function runStudy(study: Study, flags: Flags): Promise<void> {
  const jobs = jobsOf(study, flags);
  let [spent, ran] = [0, 0];
  for (const [i, job] of jobs.entries()) {
    const seconds = await runJob(study, job, flags);
    if (seconds === undefined) continue;
    spent += seconds;
    ran += 1;
    const left = jobs.length - i - 1;
    if (left > 0) console.log(`${i + 1} of ${jobs.length} jobs; about ${duration((left * spent) / ran)} left`);
  }
  await show(study, flags);
}

/** Runs a job whose outcome is not there yet, and returns the seconds it took. A training that diverges is an outcome too. */
async function runJob(study: Study, job: string, flags: Flags): Promise<number | undefined> {
  const at = job.lastIndexOf(' ');
  const [condition, seed] = [job.slice(0, at), Number(job.slice(at + 1))];
  if (!study.conditions.includes(condition))
    throw new UserError(`${study.name} has no condition "${condition}"; there are: ${study.conditions.join('; ')}.`);
  if (readOutcomes(flags.results, study.name).some((done) => done.condition === condition && done.seed === seed))
    return undefined;
  const work = flags.work ?? join(flags.results, 'work');
  mkdirSync(join(work, study.name), { recursive: true });
  const folder = mkdtempSync(join(work, study.name, 'job-'));
  const started = performance.now();
  const done: Omit<Outcome, 'seconds'> = { condition, seed, values: {} };
  try {
    done.values = await study.run(condition, {
      ...{ seed, folder, model: join(root, 'models/tiny') },
      shared: (name, make) => sharedFolder(join(work, study.name, name), make),
    });
  } catch (error) {
    // A user's error is a mistake in how it was asked for; any other of ours is what became of the training.
    if (!(error instanceof AttuneError) || error instanceof UserError) throw error;
    done.failed = error.message;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  const seconds = Math.round((performance.now() - started) / 100) / 10;
  addOutcome(flags.results, study.name, { ...done, seconds });
  console.log(`${study.name}: ${condition}, seed ${seed}: ${done.failed ?? `${seconds} s`}`);
  return seconds;
}

async function show(study: Study, { results }: Flags): Promise<void> {
  const outcomes = new Outcomes(readOutcomes(results, study.name));
  const { findings, charts } = study.report(outcomes);
  for (const { condition, seed, failed } of outcomes.failed)
    console.log(`${condition}, seed ${seed}, has no numbers: ${failed}`);
  for (const { claim, holds, numbers } of findings) console.log(`${holds ? '✓' : '✗'} ${claim}: ${numbers}`);
  const picture = join(results, study.name, 'picture.png');
  writeFileSync(picture, await toPng(grid([...charts], { columns: 2, title: study.title })));
  console.log(picture);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof UserError)) throw error;
  console.error(error.message);
  process.exitCode = 2;
}
