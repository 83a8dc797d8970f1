/** Logic: propositional_logic and syllogism. */

import type { Random } from '../../random.ts';
import { readLine, scoreLine } from '../parts/answer.ts';
import type { Pen } from '../parts/solution.ts';
import { defineTask, level } from '../parts/task.ts';

type Connective = 'and' | 'or' | 'xor' | 'implies';
type Formula = string | { not: Formula } | { left: Formula; connective: Connective; right: Formula };

export const propositionalLogic = defineTask<{ values: Record<string, boolean>; formula: Formula }>({
  name: 'propositional_logic',
  summary: 'find the truth value of a formula',
  pose(random, difficulty) {
    const names = random.sample([...'ABCDEGHKLMNPQRSUVW'], level(difficulty, [2, 3, 3, 4, 4]));
    const leaves = level(difficulty, [2, 3, 4, 5, 7]);
    const wanted = random.chance(0.5);
    for (;;) {
      const values = Object.fromEntries(names.map((name) => [name, random.chance(0.5)]));
      const formula = randomFormula(random, names, leaves, difficulty);
      // As many true formulas as false ones.
      if (evaluate(new Map(Object.entries(values)), formula) !== wanted) continue;
      const facts = Object.entries(values).map(([name, value]) => `${name} is ${symbol(value)}.`);
      return {
        prompt: `${facts.join(' ')} What is ${writeFormula(formula)}? Answer T or F.`,
        meta: { values, formula },
      };
    }
  },
  work: ({ values, formula }, pen) => symbol(evaluate(new Map(Object.entries(values)), formula, pen)),
  check(response, answer) {
    const word = readLine(response)?.toLowerCase().split(/\s+/).at(-1);
    const said = word === 'true' ? 't' : word === 'false' ? 'f' : word;
    return said === answer.toLowerCase() ? 1 : 0;
  },
});

function randomFormula(random: Random, names: readonly string[], leaves: number, difficulty: number): Formula {
  const negated = difficulty > 1 && random.chance(0.2);
  if (leaves === 1) return negated ? { not: random.pick(names) } : random.pick(names);
  const connectives: Connective[] = ['and', 'or'];
  if (difficulty > 2) connectives.push('xor');
  if (difficulty > 3) connectives.push('implies');
  const inLeft = random.int(1, leaves - 1);
  const left = randomFormula(random, names, inLeft, difficulty);
  let right = randomFormula(random, names, leaves - inLeft, difficulty);
  while (leaves === 2 && right === left) right = random.pick(names);
  const formula = { left, connective: random.pick(connectives), right };
  return negated && leaves > 2 ? { not: formula } : formula;
}

function writeFormula(formula: Formula, inner = false): string {
  if (typeof formula === 'string') return formula;
  if ('not' in formula) return `not ${writeFormula(formula.not, true)}`;
  const text = `${writeFormula(formula.left, true)} ${formula.connective} ${writeFormula(formula.right, true)}`;
  return inner ? `(${text})` : text;
}

function evaluate(values: ReadonlyMap<string, boolean>, formula: Formula, pen?: Pen): boolean {
  if (typeof formula === 'string') return values.get(formula) ?? false;
  const concluded = (claim: string, right: boolean) => {
    const result = pen?.choice(right, [!right]) ?? right;
    pen?.say(`${claim} = ${symbol(result)}`);
    return result;
  };
  if ('not' in formula) {
    const value = evaluate(values, formula.not, pen);
    return concluded(`not ${symbol(value)}`, !value);
  }
  const left = evaluate(values, formula.left, pen);
  const right = evaluate(values, formula.right, pen);
  const result = {
    and: left && right,
    or: left || right,
    xor: left !== right,
    implies: !left || right,
  }[formula.connective];
  return concluded(`${symbol(left)} ${formula.connective} ${symbol(right)}`, result);
}

function symbol(value: boolean): string {
  return value ? 'T' : 'F';
}

type Quantifier = 'all' | 'some' | 'no';
interface Statement {
  quantifier: Quantifier;
  subject: string;
  object: string;
}

const kinds =
  'cats dogs birds fish frogs bees ants cows pigs goats ducks bears foxes wolves lions mice owls crabs snakes toads'.split(
    ' ',
  );

export const syllogism = defineTask<{ links: Statement[]; broken: number; premises: Statement[]; question: Statement }>(
  {
    name: 'syllogism',
    summary: 'tell whether a conclusion follows from premises',
    pose(random, difficulty) {
      const length = level(difficulty, [2, 3, 4, 5, 7]);
      const names = random.sample(kinds, length + 1);
      const quantifier: Quantifier = difficulty === 1 ? 'all' : random.pick(['all', 'no', 'some']);
      // A chain of links: all are "all", but the last may be "no" and the first may be "some".
      const links = Array.from({ length }, (_, i): Statement => {
        const special = (quantifier === 'no' && i === length - 1) || (quantifier === 'some' && i === 0);
        return { quantifier: special ? quantifier : 'all', subject: names[i] ?? '', object: names[i + 1] ?? '' };
      });
      // In half the problems one "all" stands the wrong way round, and the conclusion does not follow.
      const reversible = links.flatMap((link, i) => (link.quantifier === 'all' ? [i] : []));
      const broken = random.chance(0.5) ? random.pick(reversible) : -1;
      const ordered = links.map((link, i) =>
        i === broken ? { ...link, subject: link.object, object: link.subject } : link,
      );
      const premises = difficulty > 2 ? random.shuffle(ordered) : ordered;
      const question = { quantifier, subject: names[0] ?? '', object: names[length] ?? '' };
      const text = premises.map((premise) => `${capital(statement(premise))}.`).join(' ');
      return {
        prompt: `${text} Does it follow that ${statement(question)}? Answer yes or no.`,
        meta: { links, broken, premises, question },
      };
    },
    work({ links, broken }, pen) {
      // The conclusion follows when each link of the chain is among the premises.
      const holds = links.map((link, i) => {
        const given = pen.choice(i !== broken, [i === broken]);
        pen.say(`${statement(link)}: ${given ? 'yes' : 'no'}`);
        return given;
      });
      const answer = holds.every(Boolean) ? 'yes' : 'no';
      pen.say(`follows: ${answer}`);
      return answer;
    },
    check: scoreLine,
    balancedSlips: true,
  },
);

function statement({ quantifier, subject, object }: Statement): string {
  return `${quantifier} ${subject} are ${object}`;
}

function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
