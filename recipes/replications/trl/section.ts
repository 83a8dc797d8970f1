/** The table beside TRL's trainers, from readings of `npm run bench -- trl-trainers`. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { figure, share } from '../report.ts';

export interface PeerReading {
  program: 'attune' | 'trl';
  job: 'grpo' | 'dpo';
  seed: number;
  /** Shares of right sampled responses to the same held-out problems, before and after. */
  before: number;
  after: number;
  secondsAStep: number;
}

const about: Record<PeerReading['job'], string> = {
  grpo: 'GRPO, 16 steps of 8 prompts × 8 responses, learning rate 2·10⁻⁴, no KL term, one update per batch',
  dpo: 'DPO, 20 steps of 16 pairs of the model’s own responses, β 0.1, learning rate 10⁻⁴; both train on the same tokens',
};

export function trlSection(folder: string): string {
  const file = join(folder, 'trl/results.jsonl');
  if (!existsSync(file)) return '';
  const readings = readFileSync(file, 'utf8')
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as PeerReading);
  const rows = (['grpo', 'dpo'] as const).flatMap((job) =>
    (['attune', 'trl'] as const).map((program) => {
      const own = readings.filter((reading) => reading.job === job && reading.program === program);
      const of = (name: 'before' | 'after' | 'secondsAStep') => own.map((reading) => reading[name]);
      return `| ${job} | ${program} | ${own.length} | ${share(of('before'))} | ${share(of('after'))} | ${figure(of('secondsAStep'), 2)} |`;
    }),
  );
  return [
    '## Beside TRL',
    'The same jobs with TRL’s own trainers: models/tiny, the same problems and settings, two threads each. The programs ran one after the other on the same two ARM cores, at high priority on a machine busy with other work, so the times are upper bounds and best compared within a seed. Accuracy is that of four sampled responses to each of 64 held-out problems, by the same verifier.',
    Object.values(about)
      .map((line) => `- ${line}.`)
      .join('\n'),
    `| job | program | seeds | right before | right after | seconds a step |\n|---|---|--:|--:|--:|--:|\n${rows.join('\n')}`,
    'Both jobs end where TRL’s do, within the spread of seeds. Given chats, TRL’s DPO also trains the line feed that the template writes after a turn, which models/tiny has never seen; its results then differ ([why it is left out here](data.md#chat-templates)).',
    '`npm run bench -- trl-trainers` makes these measurements (it needs a Python with `trl`, which nothing else does).',
  ].join('\n\n');
}
