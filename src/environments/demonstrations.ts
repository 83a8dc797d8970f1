/** Games of a scripted player as chats, from which a policy learns an environment's format before RL. */
import { UserError } from '../errors.ts';
import type { DrawOptions } from '../tasks/mixture.ts';
import type { Message } from '../text/index.ts';
import { type OpenedEnvironments, type Problem, playProblem } from './recipe.ts';

/** A row for `train sft`, and the game's result. */
export interface DemonstrationRow {
  messages: Message[];
  environment: string;
  seed: number;
  difficulty: number;
  success: boolean;
  reward: number;
}

/** The number of games, and the player's skill. */
export interface DemonstrationOptions extends DrawOptions {
  count: number;
  seed: number;
  /** The share of good moves, from 0 to 1. */
  skill: number;
}

/** Games of the environments' scripted players. */
export async function* demonstrationRows(
  environments: OpenedEnvironments,
  { count, seed, skill, ...draw }: DemonstrationOptions,
): AsyncGenerator<DemonstrationRow> {
  const silent = environments.all.find(({ demonstrates }) => !demonstrates);
  if (silent !== undefined)
    throw new UserError(
      `The environment ${silent.name} has no scripted player: give it demonstrate({ seed, difficulty, random, skill }), which returns the text of each turn.`,
    );
  for (let index = 0; index < count; index++) yield demonstration(await environments.problem(seed, index, draw), skill);
}

/** One game on a problem. */
export async function demonstration(problem: Problem, skill: number): Promise<DemonstrationRow> {
  const { environment, seed, difficulty } = problem;
  const turns = await environment.demonstrate(seed, difficulty, skill);
  const episode = await playProblem(problem);
  const messages: Message[] = [...episode.messages];
  let [reward, success] = [0, false];
  try {
    for (const [i, content] of turns.entries()) {
      messages.push({ role: 'assistant', content });
      const step = await episode.step(content, { turn: i + 1 });
      reward += step.reward;
      success = step.success ?? success;
      if (step.done) break;
      // The observation after the last turn gets no answer.
      if (i < turns.length - 1) messages.push(...step.observation);
    }
  } finally {
    await episode.end();
  }
  return { messages, environment: environment.name, seed, difficulty, success, reward };
}
