import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

/** What models write, names and data are text. These would make HTML of them. */
const ways =
  /dangerouslySetInnerHTML|\b(inner|outer)HTML\b|insertAdjacentHTML|document\.write|\bsrcdoc\b|\beval\(|new Function/;

it('nothing on the page is made of HTML that comes from elsewhere', () => {
  const files = readdirSync(import.meta.dirname, { recursive: true, encoding: 'utf8' }).filter(
    (name) => /\.(tsx?|html)$/.test(name) && !/\.test\.ts$/.test(name),
  );
  expect(files.length).toBeGreaterThan(50);
  expect(files.filter((name) => ways.test(readFileSync(join(import.meta.dirname, name), 'utf8')))).toEqual([]);
});
