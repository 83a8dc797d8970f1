/** The commands that the studio's pages show to be copied are commands of attune, with options that these have. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Command } from 'commander';
import { expect, it } from 'vitest';

const pages = join(import.meta.dirname, '../studio');
const commands = readdirSync(pages, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.tsx'))
  .flatMap((name) => [...readFileSync(join(pages, name), 'utf8').matchAll(/\$\{[^}]*\battune\b[^}]*\} ([a-z][^`]*)`/g)])
  // What is filled in stands for a name.
  .map(([, typed = '']) => typed.replaceAll(/\$\{(?:[^{}`]|`[^`]*)*\}?/g, 'x').trim());

it('there are some', () => expect(commands.length).toBeGreaterThan(4));

it.each(commands)('attune %s', async (typed) => {
  const words = typed.split(/\s+/);
  const program = new Command().exitOverride();
  const { register } = await import(`../src/cli/${words[0]}.ts`);
  register(program);
  let parsed = false;
  const quiet = (command: Command): void => {
    command.exitOverride().configureOutput({ writeErr: () => {} });
    if (command.commands.length === 0)
      command.action(() => {
        parsed = true;
      });
    command.commands.forEach(quiet);
  };
  program.commands.forEach(quiet);
  await program.parseAsync(words, { from: 'user' });
  expect(parsed).toBe(true);
});
