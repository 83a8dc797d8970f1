/** A question over a few facts: `<search>Ada</search>` returns facts, `<answer>Rome</answer>` ends the episode. */
import type { Random } from '../../random.ts';
import { defineEnvironment } from '../parts/environment.ts';
import { firstTag, said } from '../parts/tags.ts';

const names = 'Ada Bob Cleo Dan Eva Finn Gus Hana Ivan Jude Kim Leo Mia Ned Olga Paul'.split(' ');
const cities = 'Rome Oslo Lima Cairo Paris Delhi Tokyo Quito Bern Riga'.split(' ');
const pets = 'cat dog frog goat hen horse mouse owl snake turtle'.split(' ');

/** Number of people, and of friends between the named person and the one asked about, by difficulty. */
const levels = [
  { people: 4, steps: 0 },
  { people: 8, steps: 0 },
  { people: 6, steps: 1 },
  { people: 12, steps: 1 },
  { people: 12, steps: 2 },
] as const;

/** The most turns in an episode, including the answer. */
const mostTurns = 6;
/** The most facts returned by a search. */
const mostFacts = 4;

interface Problem {
  question: string;
  answer: string;
  facts: readonly string[];
  /** The people to look up, in order. */
  chain: readonly string[];
  /** Wrong answers of the same kind. */
  others: readonly string[];
}

function problem(random: Random, difficulty: number): Problem {
  const { people: count, steps } = levels[difficulty - 1] as (typeof levels)[number];
  const people = random.sample(names, count);
  const about = people.map((name, i) => ({
    name,
    city: random.pick(cities),
    pet: random.pick(pets),
    friend: people[(i + random.int(1, count - 1)) % count] as string,
  }));
  const of = (name: string) => about.find((each) => each.name === name) as (typeof about)[number];
  const chain = [people[0] as string];
  for (let step = 0; step < steps; step++) chain.push(of(chain.at(-1) as string).friend);
  const who = `${chain[0]}${"'s friend".repeat(steps)}`;
  const last = of(chain.at(-1) as string);
  const isCity = random.chance(0.5);
  return {
    question: isCity ? `Where does ${who} live?` : `Which pet has ${who}?`,
    answer: isCity ? last.city : last.pet,
    others: isCity ? cities : pets,
    facts: about.flatMap(({ name, city, pet, friend }) => [
      `${name} lives in ${city}.`,
      `${name} has ${/^[aeiou]/.test(pet) ? 'an' : 'a'} ${pet}.`,
      `${name}'s friend is ${friend}.`,
    ]),
    chain,
  };
}

const wordsOf = (text: string) => text.toLowerCase().match(/[a-z]+/g) ?? [];

/** The facts that share the most words with the query. Facts that start with one come first. */
function found(facts: readonly string[], query: string): string {
  const asked = new Set(wordsOf(query));
  const scored = facts.map((fact) => {
    const own = wordsOf(fact);
    const hits = own.filter((word) => asked.has(word)).length;
    return { fact, score: 2 * hits + Number(hits > 0 && asked.has(own[0] as string)) };
  });
  const best = scored.filter(({ score }) => score > 0).sort((a, b) => b.score - a.score);
  return best.length === 0
    ? 'Nothing found.'
    : best
        .slice(0, mostFacts)
        .map(({ fact }) => fact)
        .join(' ');
}

export const search = defineEnvironment({
  name: 'search',
  summary: 'a question over facts that are looked up: <search>Ada</search>, then <answer>Rome</answer>',
  levels: levels.length,
  judged: true,
  start({ random, difficulty }) {
    const { question, answer, facts } = problem(random, difficulty);
    return {
      messages: `${question} <search>Ada</search> looks a name up. End with <answer>one word</answer>.`,
      key: `${question} ${facts.join(' ')}`,
      step(response, { turn }) {
        const tag = firstTag(said(response), ['search', 'answer']);
        if (tag?.name === 'answer') {
          const success = tag.content.toLowerCase() === answer.toLowerCase();
          return { reward: Number(success), done: true, success };
        }
        if (turn >= mostTurns) return { observation: 'No turns left.', done: true, success: false };
        if (tag === undefined) return { observation: 'Use <search>…</search> or <answer>…</answer>.' };
        return { observation: found(facts, tag.content) };
      },
    };
  },
  demonstrate({ random, difficulty, skill }) {
    const { answer, chain, others } = problem(random, difficulty);
    // An unskilled player guesses too early.
    const turns: string[] = [];
    for (const name of chain) {
      if (!random.chance(skill)) return [...turns, `<answer>${random.pick(others)}</answer>`];
      turns.push(`<search>${name}</search>`);
    }
    return [...turns, `<answer>${answer}</answer>`];
  },
});
