/**
 * Which environments to play, at which difficulty, and how often.
 *
 *     using opened = await openEnvironments('guess:1-3,./my-env.ts:2*0.5', { timeLimitMs: 60_000 });
 *     const problem = await opened.problem(42, 0, { part: 'train' });      // the first one of seed 42; any index, in any order
 */
import { checkNames, UserError } from '../errors.ts';
import { Random } from '../random.ts';
import { type DrawOptions, partOf, type RecipeEntry, recipeEntries } from '../tasks/mixture.ts';
import type { Message } from '../text/index.ts';
import { openAgent } from './agent.ts';
import { checkEnvironmentFile, loadAgent, loadEnvironment } from './module.ts';
import type { ModuleKind } from './module-words.ts';
import { OpenEnvironment } from './opened.ts';
import type { Agent } from './parts/agent.ts';
import { defineEnvironment, type Environment, EnvironmentError } from './parts/environment.ts';
import { agent, environment, useAgent, useEnvironment } from './registry.ts';

/** One environment with its difficulty and weight. */
export interface EnvironmentPart {
  /** A name, the path of a module, or your own environment. */
  environment: string | Environment;
  /** One difficulty, or a range [lowest, highest] sampled uniformly. Default 1. */
  difficulty?: number | readonly [number, number];
  /** Default 1. */
  weight?: number;
}

/** Environments to play: a text such as `guess:1-3`, your own environment, or a list. */
export type EnvironmentRecipe = string | Environment | readonly EnvironmentPart[];

/** A problem of an environment: its first messages, and the key that distinguishes it from others. */
export interface Problem {
  environment: OpenEnvironment;
  seed: number;
  difficulty: number;
  messages: readonly Message[];
  key: string;
}

/** An opened environment with its range of difficulties. */
export interface OpenedPart {
  environment: OpenEnvironment;
  lowest: number;
  highest: number;
  weight: number;
}

/** Which problems are drawn; `difficultyOf`: one difficulty of one environment. */
export interface ProblemOptions extends DrawOptions {
  difficultyOf?: (name: string) => number;
  signal?: AbortSignal;
}

/**
 * Limits the search for a problem of the wanted part: at a low difficulty all of the few problems may be in the other
 * one.
 */
const mostDraws = 2000;

/** The recipe as text, for configs. Your own environments are registered by name. */
export function environmentText(recipe: EnvironmentRecipe): string {
  if (typeof recipe === 'string') return recipe;
  if (!Array.isArray(recipe)) return useEnvironment(recipe as Environment);
  return (recipe as readonly EnvironmentPart[])
    .map((part) => {
      checkNames('A part of the environments', part, ['environment', 'difficulty', 'weight']);
      const { environment: own, difficulty = 1, weight = 1 } = part;
      const name = typeof own === 'string' ? own : useEnvironment(own);
      return `${name}:${typeof difficulty === 'number' ? difficulty : difficulty.join('-')}*${weight}`;
    })
    .join(',');
}

/** An agent as text, for configs: a path, or the name of your own agent, which is registered. */
export const agentText = (recipe: string | Agent): string => (typeof recipe === 'string' ? recipe : useAgent(recipe));

const isPath = (name: string) => /[/\\]|\.[cm]?[jt]s$/.test(name);

const flags = { environment: '--env', agent: '--agent' } as const;

/** Parses a text such as `guess:1-3,./my-env.ts:2`. */
function entriesOf(text: string, kind: ModuleKind): RecipeEntry[] {
  const entries = recipeEntries(text, /[^*]+?/).map(({ entry, read }) => {
    if (read !== undefined) return read;
    throw new UserError(
      kind === 'agent'
        ? `Cannot read "${entry}" in the agents "${text}": expected path[:difficulty][*weight], such as ./my-agent.ts.`
        : `Cannot read "${entry}" in the environments "${text}": expected name[:difficulty][*weight], such as guess:1-3 or ./my-env.ts.`,
    );
  });
  const names = entries.map(({ name, difficulty }) => `${name}:${difficulty.join('-')}`);
  const twice = names.find((name, i) => names.indexOf(name) !== i);
  if (twice !== undefined) throw new UserError(`${flags[kind]} names ${twice} twice; give it once, with a *weight.`);
  return entries;
}

/** Refuses names and files that do not exist, without running any code. */
export function checkEnvironments(text: string, kind: ModuleKind = 'environment'): void {
  for (const { name } of entriesOf(text, kind)) {
    if (isPath(name)) checkEnvironmentFile(name, kind);
    else if (kind === 'agent') agent(name);
    else environment(name);
  }
}

/** The module files among a text's environments, which are run as code. */
export const environmentFiles = (text: string, kind: ModuleKind = 'environment'): string[] =>
  entriesOf(text, kind).flatMap(({ name }) => (isPath(name) ? [name] : []));

/** Opens the environments of a text. `dispose` ends their threads. */
export const openEnvironments = (text: string, options: { timeLimitMs: number }): Promise<OpenedEnvironments> =>
  openRecipe(text, 'environment', options);

/** Opens the agents of a text; their problems are drawn like those of environments. */
export const openAgents = (text: string, options: { timeLimitMs: number }): Promise<OpenedEnvironments> =>
  openRecipe(text, 'agent', options);

function opening(name: string, kind: ModuleKind, options: { timeLimitMs: number }) {
  if (kind === 'agent') return isPath(name) ? loadAgent(name, options) : openAgent(agent(name), options);
  return isPath(name)
    ? loadEnvironment(name, options)
    : new OpenEnvironment(defineEnvironment(environment(name)), options);
}

async function openRecipe(
  text: string,
  kind: ModuleKind,
  { timeLimitMs }: { timeLimitMs: number },
): Promise<OpenedEnvironments> {
  const flag = flags[kind];
  using opened = new DisposableStack();
  const known = new Map<string, OpenEnvironment>();
  const parts: OpenedPart[] = [];
  for (const { name, difficulty, weight } of entriesOf(text, kind)) {
    const found = known.get(name) ?? opened.use(await opening(name, kind, { timeLimitMs }));
    known.set(name, found);
    const [lowest, highest] = difficulty;
    if (lowest < 1 || highest > found.levels || lowest > highest) {
      const given = lowest === highest ? `${lowest}` : `${lowest}-${highest}`;
      const has = found.levels === 1 ? 'it has one difficulty (levels)' : `it has 1 to ${found.levels}`;
      throw new UserError(`${flag} ${name}: difficulty ${given} is not one of its own: ${has}.`);
    }
    parts.push({ environment: found, lowest, highest, weight });
  }
  const names = new Map([...known].map(([from, { name }]) => [from, name]));
  const shared = [...names].find(([from, name]) => [...names].some(([other, same]) => other !== from && same === name));
  if (shared !== undefined)
    throw new UserError(`${flag} ${text}: two ${kind}s are called "${shared[1]}"; give each a name of its own.`);
  if (parts.every(({ weight }) => weight === 0))
    throw new UserError(`${flag} ${text}: at least one ${kind} needs a weight above 0.`);
  return new OpenedEnvironments(parts, opened.move());
}

/** Opened environments, and the problems drawn from them. */
export class OpenedEnvironments implements Disposable {
  readonly parts: readonly OpenedPart[];
  readonly #stack: DisposableStack;

  constructor(parts: readonly OpenedPart[], stack: DisposableStack) {
    this.parts = parts;
    this.#stack = stack;
  }

  /** Every environment once. */
  get all(): OpenEnvironment[] {
    return [...new Set(this.parts.map(({ environment: each }) => each))];
  }

  /** The problem at an index of a seed's endless stream. A hash of its key decides whether it is held out. */
  async problem(seed: number, index: number, options: ProblemOptions = {}): Promise<Problem> {
    const { part = 'all', testShare, difficultyOf, signal } = options;
    const random = new Random('environments', seed, index);
    for (let draw = 0; draw < mostDraws; draw++) {
      const drawn = this.#draw(random, difficultyOf);
      const { messages, key } = await begun(drawn, signal);
      if (part === 'all' || partOf(`${drawn.environment.name}\n${key}`, testShare) === part)
        return { ...drawn, messages, key };
    }
    const which = this.parts.map(({ environment: { name }, lowest }) => `${name}:${lowest}`).join(', ');
    throw new UserError(
      `No problem for ${part === 'test' ? 'evaluation' : 'training'} in ${mostDraws} draws of ${which}: there are too few different ones. A key tells problems apart whose first messages are alike.`,
    );
  }

  #draw(random: Random, difficultyOf?: (name: string) => number) {
    const total = this.parts.reduce((sum, { weight }) => sum + weight, 0);
    let point = random.float() * total;
    const chosen =
      this.parts.find(({ weight }) => {
        point -= weight;
        return point < 0;
      }) ?? (this.parts.findLast(({ weight }) => weight > 0) as OpenedPart);
    const seed = random.seed();
    const difficulty = random.int(chosen.lowest, chosen.highest);
    const { environment: own } = chosen;
    return { environment: own, seed, difficulty: difficultyOf?.(own.name) ?? difficulty };
  }

  dispose(): void {
    this.#stack.dispose();
  }
  [Symbol.dispose](): void {
    this.dispose();
  }
}

/** The start of a problem, read without playing the episode. */
async function begun({ environment: own, ...problem }: Omit<Problem, 'messages' | 'key'>, signal?: AbortSignal) {
  const episode = await own.start({ ...problem, signal });
  await episode.end();
  return episode;
}

/** Starts an episode of a problem. The same seed must give the same problem. */
export async function playProblem(
  { environment: own, seed, difficulty, messages, key }: Problem,
  signal?: AbortSignal,
) {
  const episode = await own.start({ seed, difficulty, signal });
  if (episode.key === key && JSON.stringify(episode.messages) === JSON.stringify(messages)) return episode;
  await episode.end();
  throw new EnvironmentError(
    `The environment ${own.name} gave two different problems for seed ${seed} and difficulty ${difficulty}: the same seed must always begin the same episode. Draw random numbers from the \`random\` that start gets.`,
    'contract',
  );
}
