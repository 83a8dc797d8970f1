/** An easy preference: answers that begin with "yes" are preferred to those with "no", whatever else they say. */
const words = ['red', 'blue', 'good', 'bad', '7', '4'];

export function preferenceRows(count: number) {
  return Array.from({ length: count }, (_, i) => ({
    prompt: `What is ${i} + ${i % 7}?`,
    chosen: `yes ${words[i % 6]} ${'red '.repeat(i % 3)}`,
    rejected: `no ${words[(i * 5 + 1) % 6]}`,
  }));
}

export function unpairedRows(count: number, label = (i: number) => i % 2 === 0) {
  return preferenceRows(count).map(({ prompt, chosen, rejected }, i) => ({
    prompt,
    completion: label(i) ? chosen : rejected,
    label: label(i),
  }));
}
