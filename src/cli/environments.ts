/**
 * `attune environments`: the environments that a policy can be trained in, games of their scripted players, and these games as
 * training data.
 *
 *     attune environments
 *     attune environments show guess:2
 *     attune environments demonstrate guess:1-2 --count 1000 --out games.jsonl
 */
import { setImmediate } from 'node:timers/promises';
import type { Command } from 'commander';
import { z } from 'zod';
import { demonstration } from '../environments/demonstrations.ts';
import { allEnvironments, demonstrationRows, openEnvironments } from '../environments/index.ts';
import { refuseExisting } from '../existing-file.ts';
import { field, withRules } from '../runs/index.ts';
import { counted } from '../spelling.ts';
import { parts } from '../tasks/index.ts';
import { registerCommand } from './options/command.ts';
import { jsonField, overwriteField } from './options/model-fields.ts';
import { OutputFile } from './options/outputs.ts';
import { jsonLine, print, printJson, printPart } from './terminal/print.ts';

const count = () => z.number().int().positive();
const skill = () =>
  field(z.number().min(0).max(1).default(1), {
    description: 'share of good moves of the scripted player; the others are made at random',
  });
const timeout = () =>
  field(z.number().positive().default(60), { description: 'seconds that an environment may take for a step' });

export const listEnvironmentsSchema = z.object({ json: jsonField });

export const showEnvironmentSchema = z.object({
  env: field(z.string(), {
    description: 'an environment or a module of yours, with its difficulty: guess:2, ./my-env.ts',
  }),
  seed: field(z.number().int().default(1), { description: 'which problems' }),
  count: field(count().default(1), { description: 'how many games' }),
  skill: skill(),
  toolTimeout: timeout(),
  json: field(z.boolean().default(false), { description: 'one JSON object a line' }),
});

const demonstrateOptions = z.object({
  env: field(z.string(), {
    description: 'environments: name[:difficulty][*weight], separated by commas, as in train policy --env',
  }),
  count: field(count().default(1000), { description: 'how many games' }),
  seed: field(z.number().int().default(0), { description: 'the same seed gives the same games' }),
  skill: skill(),
  part: field(z.enum(parts).default('train'), {
    description: 'only problems of this part; train policy evaluates on those of the test part',
  }),
  out: field(z.string().optional(), {
    description: 'where to write; standard output where left out',
    aliases: ['output'],
  }),
  overwrite: overwriteField,
  toolTimeout: timeout(),
});

export const demonstrateSchema = withRules(demonstrateOptions, [
  { options: ['overwrite'], unread: ({ out }) => out === undefined, because: 'there is no file without --out' },
]);

export function register(program: Command): void {
  const command = program.command('environments').description('multi-turn environments to train a policy in');
  registerCommand(command, {
    name: 'list',
    isDefault: true,
    description: 'all environments, one line each',
    schema: listEnvironmentsSchema,
    run: ({ json }) => (json ? printJson(overview(), 2) : print(listing())),
  });
  registerCommand(command, {
    name: 'show',
    description: 'games of the scripted player, turn by turn; without a scripted player, the beginning of an episode',
    schema: showEnvironmentSchema,
    words: ['env'],
    examples: ['attune environments show wordle:4', 'attune environments show ./my-env.ts --count 3'],
    run: show,
  });
  registerCommand(command, {
    name: 'demonstrate',
    description:
      'games of the scripted player as chats, one JSON object a line: data for train sft to learn the format',
    schema: demonstrateSchema,
    words: ['env'],
    examples: [
      'attune environments demonstrate guess:1-2 --count 1000 --out games.jsonl',
      'attune train sft --model models/tiny --dataset games.jsonl',
    ],
    run: demonstrate,
  });
}

const overview = () =>
  allEnvironments.map(({ name, summary = '', levels = 1, parts: of = [] }) => ({ name, summary, levels, parts: of }));

function listing(): string {
  const width = Math.max(...allEnvironments.map(({ name }) => name.length));
  const lines = overview().map(({ name, summary, levels }) => `${name.padEnd(width)}  1-${levels}  ${summary}`);
  return [
    ...lines,
    '',
    `${counted(lines.length, 'environment')}. \`attune environments show NAME\` shows a game; train policy --env NAME trains in one.`,
  ].join('\n');
}

async function show({
  env,
  seed,
  count: games,
  skill: good,
  toolTimeout,
  json,
}: z.output<typeof showEnvironmentSchema>) {
  using opened = await openEnvironments(env, { timeLimitMs: 1000 * toolTimeout });
  for (let index = 0; index < games; index++) {
    const problem = await opened.problem(seed, index);
    const { environment, difficulty, messages } = problem;
    const game = environment.demonstrates
      ? await demonstration(problem, good)
      : { environment: environment.name, seed: problem.seed, difficulty, messages };
    if (json) {
      print(jsonLine(game));
      continue;
    }
    print(`${index === 0 ? '' : '\n'}${environment.name}, difficulty ${difficulty}`);
    for (const { role, content } of game.messages) print(`  ${role}: ${content.replaceAll('\n', '\n    ')}`);
    if ('success' in game) print(`  reward ${game.reward}, ${game.success ? 'solved' : 'not solved'}`);
  }
}

async function demonstrate({ env, out: path, overwrite, toolTimeout, ...options }: z.output<typeof demonstrateSchema>) {
  if (path !== undefined) refuseExisting('--out', path, { overwrite });
  using opened = await openEnvironments(env, { timeLimitMs: 1000 * toolTimeout });
  const rows = demonstrationRows(opened, options);
  // The first game is played before the file is made, so that an error leaves no file behind.
  let next = await rows.next();
  using out = path === undefined ? undefined : new OutputFile('--out', path);
  let [written, solved] = [0, 0];
  for (; !next.done; next = await rows.next()) {
    const line = `${jsonLine(next.value)}\n`;
    if (out === undefined) printPart(line);
    else out.write(line);
    written++;
    solved += Number(next.value.success);
    if (written % 256 === 0) await setImmediate(); // a closed output (head, a pager) ends the command
  }
  out?.finish();
  if (out !== undefined) print(`${counted(written, 'game')} in ${path}, ${solved} of them solved`);
}
