/** All environments by name. A new one is one file and one line here. A program adds its own with `useEnvironment`. */
import { suggestion, UserError } from '../errors.ts';
import { gridworld } from './games/gridworld.ts';
import { guess } from './games/guess.ts';
import { wordle } from './games/wordle.ts';
import { type Agent, defineAgent } from './parts/agent.ts';
import { defineEnvironment, type Environment } from './parts/environment.ts';
import { calculator } from './tools/calculator.ts';
import { search } from './tools/search.ts';

/** The environments that come with attune. */
export const allEnvironments: readonly Environment[] = [guess, wordle, gridworld, calculator, search];

/** The names of the environments that come with attune. */
export const environmentNames: readonly string[] = allEnvironments.map(({ name }) => name);

/** Environments that the program registered. */
const given = new Map<string, Environment>();

/**
 * Registers your own environment for this process and returns its name, for recipes and configs. `trainPolicy({ env:
 * mine })` does this itself.
 */
export function useEnvironment(own: Environment): string {
  const { name } = defineEnvironment(own);
  const known = allEnvironments.find((each) => each.name === name);
  if (known !== undefined && known !== own)
    throw new UserError(`"${name}" is the name of one of attune's own environments: give yours another.`);
  if (known === undefined) given.set(name, own);
  return name;
}

/** Finds an environment by name; an unknown name throws a UserError that suggests the nearest one. */
export function environment(name: string): Environment {
  const found = allEnvironments.find((each) => each.name === name) ?? given.get(name);
  if (found !== undefined) return found;
  throw new UserError(
    `Unknown environment "${name}".${suggestion(name, [...environmentNames, ...given.keys()])} There are ${environmentNames.join(', ')}; a file of yours is named by its path, such as ./my-env.ts. An environment that a program handed over is known only to a program that hands it over again: env: mine, also to go on with a run.`,
  );
}

/** Agents that the program registered. */
const givenAgents = new Map<string, Agent>();

/** Registers your own agent for this process and returns its name. `trainPolicy({ agent: mine })` does this itself. */
export function useAgent(own: Agent): string {
  const { name } = defineAgent(own);
  givenAgents.set(name, own);
  return name;
}

/** Finds a registered agent. */
export function agent(name: string): Agent {
  const found = givenAgents.get(name);
  if (found !== undefined) return found;
  throw new UserError(
    `There is no agent "${name}".${suggestion(name, [...givenAgents.keys()])} An agent is a file of yours, such as ./my-agent.ts; one that a program handed over is known only to a program that hands it over again: agent: mine, also to go on with a run.`,
  );
}
