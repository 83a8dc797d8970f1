/**
 * docs/api.md from the sources' own comments: every export of the package's entries with its signature and its sentence.
 *
 *     npm run docs            # writes docs/api.md; tests/api-docs.test.ts fails where it is stale or a sentence is missing
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(dirname(fileURLToPath(import.meta.url)));

export interface Export {
  name: string;
  kind: 'function' | 'class' | 'const' | 'interface' | 'type';
  /** The comment above it, without its stars. */
  comment: string;
  /** Of functions and classes: what a program writes. */
  signature: string;
  /** Of interfaces and classes: the names of their public members, `?` after those that may be left out. */
  members: string[];
  file: string;
}

export interface Entry {
  /** As a program imports it: `attune/models`. */
  specifier: string;
  file: string;
  summary: string;
  exports: Export[];
}

const declaration =
  /^export (?:declare )?(?:abstract )?(?:async )?(function\*?|class|const|let|interface|type) (\w+)/gm;

/** The package's entries, as package.json lists them. */
export function entries(): Entry[] {
  const { exports: map } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as {
    exports: Record<string, string | { 'attune-source': string }>;
  };
  return Object.entries(map).flatMap(([path, target]) => {
    if (typeof target === 'string') return [];
    const file = join(root, target['attune-source']);
    const found = [...exportsOf(file).values()].sort((a, b) => a.name.localeCompare(b.name));
    const specifier = path === '.' ? 'attune' : `attune/${path.slice(2)}`;
    return [{ specifier, file, summary: firstComment(readFileSync(file, 'utf8')), exports: found }];
  });
}

/** Everything that a file exports, its own and what it passes on, by name. */
function exportsOf(file: string): Map<string, Export> {
  const text = readFileSync(file, 'utf8');
  const found = new Map<string, Export>();
  for (const [, from] of text.matchAll(/^export (?:type )?\* from '([^']+)';/gm))
    for (const [name, each] of exportsOf(join(dirname(file), from as string))) found.set(name, each);
  for (const [, typed, names, from] of text.matchAll(/^export (type )?\{([^}]*)\} from '([^']+)';/gm)) {
    const inner = exportsOf(join(dirname(file), from as string));
    const types = typed === undefined ? typesOf(names as string) : namesOf(names as string);
    for (const part of namesOf(names as string)) {
      const [name = '', as = name] = part.split(/ as /);
      const each = inner.get(name);
      if (each === undefined) throw new Error(`${file}: "${name}" is not exported by ${from}`);
      // A class that is passed on as a type cannot be made by a program.
      const kind = types.includes(part) && each.kind === 'class' ? 'interface' : each.kind;
      found.set(as, { ...each, kind, name: as, signature: each.signature.replace(new RegExp(`\\b${name}\\b`), as) });
    }
  }
  for (const [, names] of text.matchAll(/^export (?:type )?\{([^}]*)\};/gm)) {
    for (const name of namesOf(names as string)) {
      const imported = [...text.matchAll(/^import (?:type )?\{([^}]*)\} from '(\.[^']+)';/gm)].find(([, inside]) =>
        namesOf(inside as string).includes(name),
      );
      const each = imported && exportsOf(join(dirname(file), imported[2] as string)).get(name);
      if (each !== undefined) found.set(name, each);
    }
  }
  for (const match of text.matchAll(declaration)) {
    const [, word = '', name = ''] = match;
    if (found.has(name) && found.get(name)?.file === file) continue; // a further overload
    const kind = word.startsWith('function') ? 'function' : word === 'let' ? 'const' : (word as Export['kind']);
    const signature = signatureOf(text, match.index, kind);
    const members = kind === 'interface' || kind === 'class' ? membersOf(text, match.index) : [];
    found.set(name, { name, kind, comment: commentBefore(text, match.index), signature, members, file });
  }
  return found;
}

const namesOf = (list: string) =>
  list
    .split(',')
    .map((each) => each.trim().replace(/^type /, ''))
    .filter(Boolean);

/** Those of a list that are passed on as types. */
const typesOf = (list: string) =>
  namesOf(
    list
      .split(',')
      .filter((each) => /^\s*type /.test(each))
      .join(','),
  );

/** The comment that ends right before a place. */
function commentBefore(text: string, at: number): string {
  const before = text.slice(0, at).trimEnd();
  if (!before.endsWith('*/')) return '';
  return plain(before.slice(before.lastIndexOf('/**')));
}

function firstComment(text: string): string {
  const [comment = ''] = text.match(/^\s*\/\*\*[\s\S]*?\*\//) ?? [];
  return plain(comment);
}

const plain = (comment: string) =>
  comment
    .replace(/^\s*\/\*\*+|\*\/$/g, '')
    .split('\n')
    .map((line) => line.replace(/^\s*\* ?/, '').trimEnd())
    .join('\n')
    .trim();

/** From `export` to the body: a function with its parameters and its result, a class by its head. */
function signatureOf(text: string, at: number, kind: Export['kind']): string {
  const rest = text.slice(at).replace(/^export /, '');
  if (kind === 'class' || kind === 'interface') return rest.slice(0, rest.indexOf('{')).trim();
  if (kind !== 'function')
    return (
      rest
        .split('\n')[0]
        ?.split(/ =(?: |$)/)[0]
        ?.replace(/;$/, '') ?? ''
    );
  let depth = 0;
  for (let i = 0; i < rest.length; i++) {
    const character = rest[i] as string;
    if ('([{<'.includes(character) && !(character === '{' && depth === 0 && isBody(rest, i))) depth++;
    else if (')]}'.includes(character) || (character === '>' && rest[i - 1] !== '=')) depth--;
    else if (depth === 0 && (character === ';' || character === '{'))
      return (
        rest
          .slice(0, i)
          // A generator that is asynchronous is iterated in another way; of other functions the result says it.
          .replace(/^async (?!function\*)/, '')
          .replace(/\s+/g, ' ')
          .replaceAll('( ', '(')
          .replaceAll(', )', ')')
          .trim()
      );
  }
  return rest.split('\n')[0] ?? '';
}

/** The public members of an interface or a class: lines of its body that are indented once and begin with a name, except `@internal` ones. */
function membersOf(text: string, at: number): string[] {
  const body = text.slice(at, text.indexOf('\n}', at));
  const member = /^ {2}(static )?(?:readonly )?(?:async )?(?:get )?\*?(\w+)(\??)(?=[(:<]| =)/gm;
  const isInternal = (index: number) => commentBefore(body, index).startsWith('@internal');
  const names = Array.from(body.matchAll(member))
    .filter(({ index, 2: name }) => name !== 'constructor' && !isInternal(index))
    .map(([, fixed = '', name, optional]) => `${fixed}${name}${optional}`);
  return [...new Set(names)];
}

/** A brace after `)` or after a result type opens the body; after `:` it opens a type. */
const isBody = (text: string, at: number) => !/[:|&]\s*$/.test(text.slice(0, at));

/** The first sentence, for tables. A full stop after an abbreviation, or within brackets or code, does not end it. */
export function sentence(comment: string): string {
  const paragraph = (comment.split(/\n\s*\n/)[0] ?? '').replace(/\s+/g, ' ').trim();
  let open = 0;
  let code = false;
  for (let i = 0; i < paragraph.length; i++) {
    const character = paragraph[i] as string;
    if (character === '`') code = !code;
    if (code) continue;
    if ('([{'.includes(character)) open++;
    else if (')]}'.includes(character)) open--;
    const ends = character === '.' && open <= 0 && (paragraph[i + 1] ?? ' ') === ' ';
    if (ends && !/\b(al|Dr|vs|cf|e\.g|i\.e)$/.test(paragraph.slice(0, i))) return paragraph.slice(0, i + 1);
  }
  return paragraph.replace(/:$/, '.');
}

/** What stands after a type's name and its type parameters. */
function afterParameters(signature: string, name: string): string {
  const rest = signature.slice(signature.indexOf(name) + name.length);
  let depth = 0;
  for (let i = 0; i < rest.length; i++) {
    if (rest[i] === '<') depth++;
    else if (rest[i] === '>' && rest[i - 1] !== '=') depth--;
    if (depth === 0) return rest.slice(rest[0] === '<' ? i + 1 : i).trim();
  }
  return '';
}

export function page(all: readonly Entry[]): string {
  const cell = (text: string) => text.replaceAll('|', '\\|').replaceAll('<', '&lt;');
  const listed = (members: readonly string[]) => (members.length > 0 ? ` \`${members.join(', ')}\`` : '');
  const lines = [
    '# API',
    '',
    'Made from the comments in the sources by `npm run docs`. Classes and types are followed by the names of their members, whose own comments an editor shows; examples are in [library.md](library.md) and in `examples/`.',
    '',
  ];
  for (const { specifier, summary, exports } of all) {
    lines.push(`## ${specifier}`, '', sentence(summary), '');
    const callable = exports.filter(({ kind }) => kind === 'function' || kind === 'class' || kind === 'const');
    const types = exports.filter(({ kind }) => kind === 'interface' || kind === 'type');
    if (callable.length > 0) lines.push('| | |', '|---|---|');
    for (const { signature, comment, members } of callable)
      lines.push(`| \`${signature.replaceAll('|', '\\|')}\` | ${cell(sentence(comment))}${listed(members)} |`);
    if (types.length > 0) lines.push('', '| type | |', '|---|---|');
    for (const { signature, name, comment, members } of types) {
      const parent = /^(?:extends|implements) .*$/s.exec(afterParameters(signature, name))?.[0].replace(/\s+/g, ' ');
      lines.push(`| \`${parent ? `${name} ${parent}` : name}\` | ${cell(sentence(comment))}${listed(members)} |`);
    }
    lines.push('');
  }
  return `${lines.join('\n').trimEnd()}\n`;
}

export const apiPage = join(root, 'docs/api.md');

if (import.meta.main) {
  const all = entries();
  const bare = all.flatMap(({ specifier, exports }) =>
    exports.filter(({ comment }) => comment === '').map(({ name }) => `${specifier}: ${name}`),
  );
  if (bare.length > 0) console.error(`without a comment:\n  ${bare.join('\n  ')}`);
  const text = page(all);
  if (!existsSync(apiPage) || readFileSync(apiPage, 'utf8') !== text) writeFileSync(apiPage, text);
  console.log(
    `docs/api.md: ${all.reduce((sum, { exports }) => sum + exports.length, 0)} exports of ${all.length} entries`,
  );
  if (bare.length > 0) process.exitCode = 1;
}
