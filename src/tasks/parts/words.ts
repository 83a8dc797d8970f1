/** Words to make problems with: short, common and in lower case; and made-up ones that can be pronounced. */
import type { Random } from '../../random.ts';

const words = `
  ant arm art bag bat bed bee box bus cap car cat cow cup day dog ear egg eye fan fox hat hen ice ink jar key leg lip
  map net oak owl pan pea pen pig pot rat sea sky sun tea toe toy van zoo baby ball band bank bell bird boat bone book
  bowl cake calf camp coat coin corn crab desk door duck farm fish flag foot frog game gate goat gold hand hill home
  hook king kite lake lamp leaf lion meat milk moon nest nose park path pond rain ring road rock roof room rope rose
  salt sand seed ship shoe snow song star tree wall wind wolf wood apple beach berry board bread brick brush cabin
  chair chalk clock cloud coast cream crown dance dream earth field flame floor flute fruit ghost glass grain grape
  grass green heart honey horse house juice knife lemon light metal month mouse music night ocean onion paint paper
  peach pearl piano plane plant plate queen river robin scarf sheep shelf shirt skirt smile snake spoon stone storm
  sugar table tiger tooth tower train water whale wheel animal basket bottle branch bridge bucket butter button camera
  candle carrot castle cheese cherry circle copper cotton danger desert dinner doctor dragon engine family farmer
  father finger flower forest garden guitar hammer island jacket jungle kitten ladder letter lizard market mirror
  monkey mother needle orange pencil pepper pillow planet pocket potato rabbit ribbon rocket saddle school shadow
  silver spider spring summer ticket tomato tunnel turtle valley violin window winter balloon blanket cabbage captain
  chicken cottage country cushion diamond dolphin evening feather giraffe harvest journey kitchen lantern leopard
  machine morning mustard octopus orchard package panther parents peacock penguin picture pumpkin pyramid rainbow
  sandals science seaside shelter soldier sparrow station stomach student sunrise teacher thunder tractor trumpet
  village volcano weather whistle airplane alphabet anteater backpack baseball birthday broccoli building calendar
  campfire children computer creature daughter dinosaur doughnut elephant envelope farmland festival football hedgehog
  hospital kangaroo keyboard lavender lemonade mosquito mountain mushroom notebook painting pavement platform princess
  question reindeer sandwich scissors sentence shoulder skeleton squirrel starfish sunlight tortoise treasure triangle
  umbrella vacation vineyard
`
  .trim()
  .split(/\s+/);

/** The known words of the given lengths. */
export function wordsOfLength(shortest: number, longest: number): string[] {
  return words.filter((word) => word.length >= shortest && word.length <= longest);
}

/** A made-up word that can be pronounced, such as "bimo": tasks on letters should not be answered from memory. */
export function madeUpWord(random: Random, length: number): string {
  const sounds = ['bcdfghjklmnprstvwz', 'aeiou'];
  const start = random.int(0, 1);
  return Array.from({ length }, (_, i) => random.pick([...(sounds[(start + i) % 2] ?? '')])).join('');
}
