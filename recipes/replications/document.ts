/** docs/replications.md and its pictures, from the results in the repository. Nothing in it is typed by hand twice. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { grid, toPng } from '../../src/runs/plots/plots.ts';
import { readOutcomes } from './results.ts';
import { studies } from './studies.ts';
import { type Finding, Outcomes, type Report, type Study, type Table } from './study.ts';
import { trlSection } from './trl/section.ts';

const root = join(import.meta.dirname, '../..');
const here = import.meta.dirname;

interface Reported {
  study: Study;
  outcomes: Outcomes;
  report: Report;
}

/** The studies whose results are in the repository. */
function reported(): Reported[] {
  return studies.flatMap((study) => {
    const outcomes = new Outcomes(readOutcomes(here, study.name));
    return outcomes.all.length === 0 ? [] : [{ study, outcomes, report: study.report(outcomes) }];
  });
}

export async function writeDocument(): Promise<void> {
  writeFileSync(join(root, 'docs/replications.md'), documentText());
  for (const { study, report } of reported())
    writeFileSync(
      join(root, pictureOf(study)),
      await toPng(grid([...report.charts], { columns: 2, title: study.title }), { scale: 1.1 }),
    );
}

const pictureOf = ({ name }: Study) => `docs/images/replication-${name}.png`;

/** Replicated where every statement holds, in part where some do. */
export function verdict(findings: readonly Finding[]): string {
  const held = findings.filter(({ holds }) => holds).length;
  const count = `${held} of ${findings.length}`;
  return held === findings.length ? `holds (${count})` : held === 0 ? `does not hold (${count})` : `in part (${count})`;
}

export function documentText(): string {
  const all = reported();
  const minutes = (outcomes: Outcomes) =>
    outcomes.all.reduce((sum, { seconds, elsewhere }) => sum + (elsewhere === undefined ? seconds : 0), 0) / 60;
  const onCores = all
    .filter(({ study }) => study.name !== 'at-size')
    .reduce((sum, { outcomes }) => sum + minutes(outcomes), 0);
  const jobs = all
    .filter(({ study }) => study.name !== 'at-size')
    .reduce((sum, { outcomes }) => sum + outcomes.all.length, 0);
  const onGpu = all
    .filter(({ study }) => study.name === 'at-size')
    .reduce((sum, { outcomes }) => sum + minutes(outcomes), 0);
  return `${[
    '# Replications',
    'Six published effects of post-training, rerun on models small enough for a laptop; the sixth repeats two of the others at 113M parameters on a GPU. Each is one command over three seeds, with the spread shown (± is the standard deviation over seeds) and a verdict on every statement. Failed replications are reported as such. A replication succeeds if the trend holds, not the figure.',
    '```\nnpm run replicate                              # lists them\nnpm run replicate -- zero                      # runs all jobs of one effect, prints its findings and draws its picture\nnpm run replicate -- zero --seeds 4,5,6        # other seeds\nnpm run replicate -- --jobs                    # lists all jobs, to distribute them over processes\n```',
    'A job is one condition with one seed and takes seconds to a few minutes. Its outcome is a line in `attune-replications/NAME/results.jsonl`; a job with an outcome is not run again. The outcomes behind this page are in `recipes/replications/*/results.jsonl`. `npm run replicate -- --docs` writes the page from them, and a test checks that the two agree.',
    'We decided what counts as “holds”, and not all of it beforehand. After a first run the tasks and data of 3 and 5 and the base of 4 were changed, some conditions were dropped for time, the bound in 3 was raised (which turned a yes into a no), and the statements about baselines in 5 were rewritten.',
    `Total time: ${onCores.toFixed(0)} minutes of single x86 cores for the first five together (${jobs} jobs; side by side on a machine of 16 cores, eight minutes)${onGpu > 0 ? `, and ${onGpu.toFixed(0)} minutes of one H200 shared by three seeds for the sixth` : ''}.`,
    `| | effect | verdict |\n|--:|---|---|\n${all.map(({ study, report }, i) => `| ${i + 1} | [${study.title}](#${anchor(i, study)}) | ${verdict(report.findings)} |`).join('\n')}`,
    ...all.map(section),
    trlSection(here),
  ].join('\n\n')}\n`;
}

const anchor = (i: number, { title }: Study) =>
  `${i + 1} ${title}`
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} -]/gu, '')
    .replaceAll(' ', '-');

function section({ study, outcomes, report }: Reported, i: number): string {
  const seeds = [...new Set(outcomes.all.map(({ seed }) => seed))].sort((a, b) => a - b);
  return [
    `## ${i + 1} ${study.title}`,
    `[${study.paper.name}](${study.paper.url}). \`npm run replicate -- ${study.name}\`, ${outcomes.all.length} jobs, seeds ${seeds.join(', ')}.`,
    `**Published.** ${study.published}`,
    `**Here.** ${study.ours}`,
    ...outcomes.failed.map(
      ({ condition, seed, failed }) =>
        `**Failed.** ${condition}, seed ${seed}: ${failed} Another seed stands in for it.`,
    ),
    `| statement | holds | numbers |\n|---|---|---|\n${report.findings.map(({ claim, holds, numbers }) => `| ${claim} | ${holds ? 'yes' : '**no**'} | ${numbers} |`).join('\n')}`,
    ...(study.reading === '' ? [] : [`**Reading.** ${study.reading}`]),
    `![${study.title}](images/replication-${study.name}.png)`,
    ...report.tables.map(({ caption, table }) => `${caption}\n\n${markdown(table)}`),
  ].join('\n\n');
}

export function markdown({ head, rows }: Table): string {
  const line = (cells: readonly string[]) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`;
  return [line(head), `|${head.map((_, i) => (i === 0 ? '---' : '--:')).join('|')}|`, ...rows.map(line)].join('\n');
}
