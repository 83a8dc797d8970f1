import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { categories, colors } from '../../src/runs/plots/tokens.ts';

const css = readFileSync(join(import.meta.dirname, 'tokens.css'), 'utf8');
const [light = '', dark = ''] = css.split('@media (prefers-color-scheme: dark)');
const read = (text: string) =>
  Object.fromEntries([...text.matchAll(/--([\w-]+): (#[0-9a-f]{6});/g)].map(([, name, value]) => [name, value]));
const themes = { light: read(light), dark: { ...read(light), ...read(dark) } };

describe('one look', () => {
  it('the colours of plots and reports are those of the page', () => {
    for (const [name, value] of Object.entries(colors)) {
      const variable = name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
      expect([variable, themes.light[variable]]).toEqual([variable, value]);
    }
    expect(categories.map((_, i) => themes.light[`series-${i + 1}`])).toEqual(categories);
  });

  const readable: [string, string][] = [
    ...['ink', 'label', 'muted', 'link'].flatMap((text) =>
      ['page', 'surface', 'head', 'control', 'hover', 'note'].map((back): [string, string] => [text, back]),
    ),
    ['ink', 'selected'],
    ['label', 'selected'],
    ['danger', 'surface'],
    ['danger', 'danger-back'],
    ['warning', 'warning-back'],
    ['good', 'good-back'],
    ['bad', 'bad-back'],
    ['on-accent', 'accent'],
  ];
  for (const [name, theme] of Object.entries(themes))
    it(`text is readable in ${name}: contrast of 4.5 or more`, () => {
      const poor = readable.filter(([text, back]) => contrast(theme[text] as string, theme[back] as string) < 4.5);
      expect(poor).toEqual([]);
    });
});

/** WCAG 2.2, relative luminance and contrast ratio. */
function contrast(a: string, b: string): number {
  const luminance = (hex: string) => {
    const [r, g, blue] = [1, 3, 5].map((at) => {
      const part = Number.parseInt(hex.slice(at, at + 2), 16) / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    }) as [number, number, number];
    return 0.2126 * r + 0.7152 * g + 0.0722 * blue;
  };
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y) as [number, number];
  return (high + 0.05) / (low + 0.05);
}
