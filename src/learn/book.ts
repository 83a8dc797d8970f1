/** The chapters of docs/learn: their text, the sources they show and their experiments. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { AttuneError, UserError } from '../errors.ts';
import { packageRoot } from '../tensor/engine/native.ts';
import type { Experiment } from './experiments/experiment.ts';
import { experiments } from './experiments/index.ts';
import { type Block, parseMarkdown } from './markdown.ts';
import type { Reference } from './reference.ts';
import { type SourceLines, sourceLines } from './source-lines.ts';

export interface Chapter {
  number: number;
  title: string;
  /** The page's path from the package's root. */
  path: string;
  blocks: Block[];
  experiment: Experiment;
}

const folder = join('docs', 'learn');

/** All chapters in order. */
export function chapters(): Chapter[] {
  const full = join(packageRoot, folder);
  if (!existsSync(full)) throw new AttuneError(`The chapters (${folder}) are not installed.`);
  const pages = readdirSync(full).filter((name) => /^\d\d-.*\.md$/.test(name));
  return pages.sort().map((name) => {
    const number = Number(name.slice(0, 2));
    const blocks = parseMarkdown(readFileSync(join(full, name), 'utf8'));
    const [first] = blocks;
    const title = first?.kind === 'heading' ? first.text.replace(/^\d+\. /, '') : name;
    const experiment = experiments[number];
    if (experiment === undefined) throw new AttuneError(`Chapter ${number} has no experiment.`);
    return { number, title, path: join(folder, name), blocks, experiment };
  });
}

/** The chapter with a number. */
export function chapter(number: number): Chapter {
  const all = chapters();
  const found = all.find((each) => each.number === number);
  if (found === undefined)
    throw new UserError(`There is no chapter ${number}: they go from 1 to ${all.length}. attune learn lists them.`);
  return found;
}

/** The stored outcome of a chapter's experiment; null before it was recorded. */
export function storedReference(number: number): Reference | null {
  const path = join(packageRoot, folder, 'curves', `${String(number).padStart(2, '0')}.json`);
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as Reference) : null;
}

/** A list item of the form "[`name`](../../src/file.ts): why" names a declaration to show. */
const sourceItem = /^\[`([\w$]+)`\]\(([^)]+\.(?:ts|cc|cu))\)/;

/** The declarations that a list of a chapter's page names; empty for other lists. */
export function sourcesIn(page: string, items: readonly string[]): SourceLines[] {
  return items.flatMap((item) => {
    const [, name, target] = sourceItem.exec(item) ?? [];
    if (name === undefined || target === undefined) return [];
    const path = relative('.', normalize(join(dirname(page), target)));
    return [sourceLines(packageRoot, path, name)];
  });
}
