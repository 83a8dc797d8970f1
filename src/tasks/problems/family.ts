/**
 * family_relationships: what one person is to another, from facts about those between them. A chain of facts goes up
 * (child of), across (sibling of) and down (parent of), in this order, so that exactly one word names the whole.
 */

import type { Random } from '../../random.ts';
import { scoreLine } from '../parts/answer.ts';
import { defineTask, level } from '../parts/task.ts';

type Sex = 'f' | 'm';
type Link = 'up' | 'across' | 'down';

interface Person {
  name: string;
  sex: Sex;
}

const women = 'Ann Amy Eva Ida Joy Kim Lea Mia Nina Rose Sue Tina Vera Zoe'.split(' ');
const men = 'Bob Ben Dan Eli Guy Ian Jim Karl Leo Max Ned Otto Paul Tom'.split(' ');

const linkWords: Record<Link, Record<Sex, string>> = {
  up: { f: 'daughter', m: 'son' },
  across: { f: 'sister', m: 'brother' },
  down: { f: 'mother', m: 'father' },
};
const opposite: Record<Link, Link> = { up: 'down', across: 'across', down: 'up' };

/** The relations that a chain can end in, by the links that make it up. */
const relations: Record<string, Record<Sex, string>> = {
  up: linkWords.up,
  across: linkWords.across,
  down: linkWords.down,
  'up up': { f: 'granddaughter', m: 'grandson' },
  'down down': { f: 'grandmother', m: 'grandfather' },
  'across down': { f: 'aunt', m: 'uncle' },
  'up across': { f: 'niece', m: 'nephew' },
  'up up up': { f: 'great-granddaughter', m: 'great-grandson' },
  'down down down': { f: 'great-grandmother', m: 'great-grandfather' },
  'across down down': { f: 'great-aunt', m: 'great-uncle' },
  'up up across': { f: 'great-niece', m: 'great-nephew' },
  'up across down': { f: 'cousin', m: 'cousin' },
};

interface Family {
  people: Person[];
  /** links[i] says what people[i] is to people[i + 1]. */
  links: Link[];
}

export const familyRelationships = defineTask<Family>({
  name: 'family_relationships',
  summary: 'name what one relative is to another',
  pose(random, difficulty) {
    const length = level(difficulty, [1, 2, 3, 3, 3]);
    const links = random.pick(chainsOf(length)).split(' ') as Link[];
    const [distractors, inverted] = level(difficulty, [
      [0, 1],
      [0, 0.2],
      [0, 0.4],
      [2, 0.5],
      [4, 0.5],
    ] as const);
    const people = strangers(random, length + 1 + distractors);
    const chain = people.slice(0, length + 1);
    const facts = links.map((link, i) => fact(chain[i], link, chain[i + 1], random.chance(inverted)));
    // The other people are children of people in the chain, so that they contradict nothing and do not change the
    // answer.
    for (const other of people.slice(length + 1)) {
      facts.push(fact(other, 'up', random.pick(chain), random.chance(0.5)));
    }
    const told = difficulty > 2 ? random.shuffle(facts) : facts;
    return {
      prompt: `${told.join(' ')} What is ${chain[0]?.name} to ${chain.at(-1)?.name}? Answer with one word.`,
      meta: { people: chain, links },
    };
  },
  work({ people, links }, pen) {
    let sex = people[0]?.sex ?? 'f';
    let known: Kin = { chain: [], sex };
    for (const i of links.keys()) {
      const right: Kin = { chain: links.slice(0, i + 1), sex };
      // A slip before the last link gets the sex wrong from there on; a slip at the last link may get the direction
      // wrong too.
      known = pen.value(right, (random) => (i < links.length - 1 ? otherSex(right) : confused(random, right)));
      sex = known.sex;
      pen.say(`${people[0]?.name} to ${people[i + 1]?.name}: ${nameOf(known)}`);
    }
    return nameOf(known);
  },
  check: scoreLine,
  balancedSlips: true,
});

/** What somebody of this sex is at the start of a chain of links to the one at its end. */
interface Kin {
  chain: Link[];
  sex: Sex;
}

function nameOf({ chain, sex }: Kin): string {
  return relations[chain.join(' ')]?.[sex] ?? '';
}

/**
 * The confusions of family: the wrong sex, the wrong way round (aunt for niece), or both. Each confusion is its own
 * inverse, so two words replace each other equally often, and lengths do not give them away.
 */
function confused(random: Random, kin: Kin): Kin {
  const reversed = { ...kin, chain: kin.chain.toReversed().map((link) => opposite[link]) };
  // A cousin is one both ways round and of either sex, so is taken for some other relative instead.
  const lone = kin.chain.length > 1 && reversed.chain.join() === kin.chain.join();
  if (lone) return { chain: random.pick<Link[]>([['across'], ['up', 'across']]), sex: kin.sex };
  return random.pick([otherSex(kin), reversed, otherSex(reversed)]);
}

function otherSex(kin: Kin): Kin {
  return { ...kin, sex: kin.sex === 'f' ? 'm' : 'f' };
}

function chainsOf(length: number): string[] {
  return Object.keys(relations).filter((chain) => chain.split(' ').length === length);
}

function strangers(random: Random, count: number): Person[] {
  const everybody: Person[] = [
    ...women.map((name): Person => ({ name, sex: 'f' })),
    ...men.map((name): Person => ({ name, sex: 'm' })),
  ];
  return random.sample(everybody, count);
}

/** "Ann is the mother of Bob.", or told from the other side: "Bob is the son of Ann." */
function fact(a: Person | undefined, link: Link, b: Person | undefined, inverted: boolean): string {
  if (a === undefined || b === undefined) return '';
  const [who, what, whom] = inverted ? [b, opposite[link], a] : [a, link, b];
  return `${who.name} is the ${linkWords[what][who.sex]} of ${whom.name}.`;
}
