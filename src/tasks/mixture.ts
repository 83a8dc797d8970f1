/**
 * Several tasks as one stream of examples.
 *
 *     const mix = mixture('chain_sum:1*2,gcd:1-3');     // name[:difficulty or range][*weight], "all" for every task
 *     mix.example(42, 0);                              // the first example of seed 42; any index, in any order
 *     for (const example of mix.examples(42, { part: 'test' })) ...
 *
 * Small difficulties have few different problems, so different seeds do not keep test problems out of training. Parts
 * do: the hash of a prompt decides whether its problem is for training or for testing.
 */
import { anything, checkArgument, either, list, type Rule, text } from '../arguments.ts';
import { checkNames, UserError } from '../errors.ts';
import { hash64, Random } from '../random.ts';
import type { Example, Task } from './parts/task.ts';
import { allTasks, task, useTask } from './registry.ts';

/** One task of a mixture with its difficulty and weight. */
export interface MixturePart {
  task: string | Task;
  /** One difficulty, or a range [lowest, highest] drawn from uniformly. 1 unless given. */
  difficulty?: number | readonly [number, number];
  /** 1 unless given. */
  weight?: number;
}

/** Tasks to draw from: a text such as `chain_sum:1*2,gcd:1-3`, a task of your own, or a list. */
export type TaskRecipe = string | Task | readonly MixturePart[];

const recipeRule: Rule = (() => {
  const listed = either(text, list(anything));
  return {
    fits: (value) => listed.fits(value) || isTask(value),
    wanted: `${listed.wanted}, or a task`,
  };
})();
const isTask = (value: unknown): value is Task => typeof (value as Task | undefined)?.generate === 'function';

/** The parts that problems can be drawn from. */
export const parts = ['all', 'train', 'test'] as const;
/** Training problems, test problems, or all. */
export type Part = (typeof parts)[number];

/** Which part of a mixture's problems to draw from. */
export interface DrawOptions {
  part?: Part;
  /** The share of all prompts that are test prompts; 0.1 unless given. */
  testShare?: number;
}

/** Several tasks as one seeded, endless stream of examples. */
export interface Mixture {
  readonly parts: readonly { task: Task; lowest: number; highest: number; weight: number }[];
  /** The example at an index of a seed's endless stream. */
  example(seed: number, index: number, options?: DrawOptions): Example;
  examples(seed: number, options?: DrawOptions): Generator<Example>;
}

/** At a low difficulty all of the few prompts may fall in one part; the search for the other part must end. */
const mostDraws = 2000;

/** Makes a mixture of tasks from a text such as `chain_sum:1*2,gcd:1-3`, from a task of your own or from a list. */
export function mixture(recipe: TaskRecipe): Mixture {
  checkArgument('A mixture of tasks', recipe, recipeRule);
  const entries = partsOf(recipe).map(checked);
  if (entries.length === 0) throw new UserError('A mixture of tasks needs at least one task.');
  // Cumulative weights: an entry is drawn where its range holds the random number.
  let total = 0;
  const reached = entries.map((entry) => {
    total += entry.weight;
    return total;
  });
  const last = entries.findLast((entry) => entry.weight > 0);
  if (last === undefined) throw new UserError('A mixture of tasks needs at least one weight above 0.');

  const draw = (random: Random): Example => {
    const point = random.float() * total;
    const chosen = entries.find((_, i) => point < (reached[i] ?? 0)) ?? last;
    return chosen.task.generate(random.seed(), random.int(chosen.lowest, chosen.highest));
  };

  const example: Mixture['example'] = (seed, index, options = {}) => {
    const { part = 'all', testShare = 0.1 } = options;
    const random = new Random('mixture', seed, index);
    for (let attempt = 0; attempt < mostDraws; attempt++) {
      const drawn = draw(random);
      if (part === 'all' || partOf(drawn.prompt, testShare) === part) return drawn;
    }
    throw new UserError(
      `No ${part} prompt in ${mostDraws} draws with a test share of ${testShare}: the tasks have too few prompts.`,
    );
  };

  return {
    parts: entries,
    example,
    *examples(seed, options) {
      for (let index = 0; ; index++) yield example(seed, index, options);
    },
  };
}

function partsOf(recipe: TaskRecipe): readonly MixturePart[] {
  if (typeof recipe === 'string') return parseMixture(recipe);
  return isTask(recipe) ? [{ task: recipe }] : recipe;
}

/** The recipe as a text, which configs keep; tasks of your own are registered by their names. */
export function recipeText(recipe: TaskRecipe): string {
  if (typeof recipe === 'string') return recipe;
  return mixture(recipe)
    .parts.map(({ task: { name }, lowest, highest, weight }) => {
      const range = highest > lowest ? `:${lowest}-${highest}` : lowest > 1 ? `:${lowest}` : '';
      return `${name}${range}${weight === 1 ? '' : `*${weight}`}`;
    })
    .join(',');
}

/** The part that a prompt belongs to; it depends on the prompt alone. */
export function partOf(prompt: string, testShare = 0.1): 'train' | 'test' {
  return (hash64(prompt)[0] >>> 0) / 2 ** 32 < testShare ? 'test' : 'train';
}

/** An entry of a recipe: a name with its difficulties and weight. */
export interface RecipeEntry {
  name: string;
  difficulty: readonly [lowest: number, highest: number];
  weight: number;
}

/** The entries of a text such as `chain_sum:1*2,gcd:2,lcm:1-3`; undefined for one that cannot be read. */
export function recipeEntries(text: string, name: RegExp): { entry: string; read: RecipeEntry | undefined }[] {
  const shape = new RegExp(`^(${name.source})(?::(\\d+)(?:-(\\d+))?)?(?:\\*(\\d+(?:\\.\\d+)?(?:e[+-]?\\d+)?))?$`);
  return text.split(',').map((each) => {
    const entry = each.trim();
    const match = shape.exec(entry);
    if (match === null) return { entry, read: undefined };
    const [, found = '', lowest = '1', highest = lowest, weight = '1'] = match;
    return { entry, read: { name: found, difficulty: [Number(lowest), Number(highest)], weight: Number(weight) } };
  });
}

export function parseMixture(text: string): MixturePart[] {
  return recipeEntries(text, /[\w-]+/).flatMap(({ entry, read }): MixturePart[] => {
    if (read === undefined)
      throw new UserError(
        `Cannot read "${entry}" in the task mixture "${text}": expected name[:difficulty][*weight], such as chain_sum:1*2 or gcd:1-3.`,
      );
    const { name, ...part } = read;
    return name === 'all' ? allTasks.map((each) => ({ ...part, task: each })) : [{ ...part, task: name }];
  });
}

function checked(part: MixturePart) {
  checkNames('A part of a mixture', part, ['task', 'difficulty', 'weight']);
  const { task: named, difficulty = 1, weight = 1 } = part;
  // Verifiers find a task by its name.
  const found = task(typeof named === 'string' ? named : useTask(named));
  const [lowest, highest] = typeof difficulty === 'number' ? [difficulty, difficulty] : difficulty;
  const inRange = (value: number) => Number.isInteger(value) && value >= 1 && value <= found.levels;
  if (!inRange(lowest) || !inRange(highest) || lowest > highest) {
    const given = lowest === highest ? `${lowest}` : `${lowest}-${highest}`;
    throw new UserError(`task ${found.name}: difficulty ${given} is not within 1 to ${found.levels}.`);
  }
  if (!(weight >= 0 && Number.isFinite(weight))) {
    throw new UserError(`task ${found.name}: the weight must be a number of 0 or more, not ${weight}.`);
  }
  return { task: found, lowest, highest, weight };
}
