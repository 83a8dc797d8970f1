/** The README is in step with the tree: its commands are those of the command line, its folders those that exist. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

const root = join(import.meta.dirname, '..');
const readme = readFileSync(join(root, 'README.md'), 'utf8');

it('names every command', () => {
  const main = readFileSync(join(root, 'src/cli/main.ts'), 'utf8');
  const [table = ''] = main.match(/^const commands[\s\S]*?^};/m) ?? [];
  const commands = [...table.matchAll(/^ {2}(\w+): \{/gm)].map(([, name]) => name as string);
  expect(commands).toContain('train');
  expect(commands.filter((name) => !new RegExp(`\\battune ${name}\\b`).test(readme))).toEqual([]);
});

it('names every folder of src/, and only folders that exist', () => {
  const [, tree = ''] = readme.split('## The tree');
  const [, block = ''] = tree.split('```');
  let above = '';
  const named = block.split('\n').flatMap((line) => {
    const [, indent = '', names = ''] = line.match(/^( *)([\w/-]+\/(?: {2}[\w/-]+\/)*)(?: |$)/) ?? [];
    if (indent === '') above = names.trim();
    return names.split(/\s+/).flatMap((name) => (name === '' ? [] : [indent === '' ? name : `${above}${name}`]));
  });
  expect(named.filter((folder) => !existsSync(join(root, folder)))).toEqual([]);
  const folders = readdirSync(join(root, 'src'), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  expect(folders.map(({ name }) => `src/${name}/`).filter((folder) => !named.includes(folder))).toEqual([]);
});
