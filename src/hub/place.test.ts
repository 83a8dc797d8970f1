import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { afterAll, expect, it } from 'vitest';
import { isSameModel } from './place.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-place-'));
afterAll(() => rmSync(folder, { recursive: true }));
const cacheDir = join(folder, 'hub');
const same = (was: string, is: string) => isSameModel(was, is, { cacheDir });
const at = (...names: string[]) => join(folder, ...names);

for (const name of ['a', 'b']) mkdirSync(at(name));
symlinkSync(at('a'), at('link'));
mkdirSync(at('run', 'final'), { recursive: true });
writeFileSync(at('run', 'run.json'), '{}');
writeFileSync(at('run', 'final', 'config.json'), '{}');
const commit = 'c'.repeat(40);
const cached = join(cacheDir, 'models--org--cached');
mkdirSync(join(cached, 'snapshots', commit), { recursive: true });
mkdirSync(join(cached, 'refs'));
writeFileSync(join(cached, 'refs', 'main'), commit);

// `one` and its copy, a model of the same sizes, one with another tokenizer and one that words chats differently.
for (const [name, weights, tokenizer, template] of [
  ['one', 'weights', '{}', '{{ a }}'],
  ['copy', 'weights', '{}', '{{ a }}'],
  ['trained', 'WEIGHTS', '{}', '{{ a }}'],
  ['spelt', 'weights', '[]', '{{ a }}'],
  ['worded', 'weights', '{}', '{{ b }}'],
] as const) {
  mkdirSync(at(name));
  writeFileSync(at(name, 'config.json'), '{}');
  writeFileSync(at(name, 'tokenizer.json'), tokenizer);
  writeFileSync(at(name, 'chat_template.jinja'), template);
  writeFileSync(at(name, 'model.safetensors'), `${'.'.repeat(9 << 20)}${weights}`);
  writeFileSync(at(name, 'train_config.json'), name);
}

// An adapter that names its base by a relative path; its copies lie beside a copy of the base, and beside another
// model.
for (const [place, base] of [
  ['here', 'one'],
  ['moved', 'copy'],
  ['elsewhere', 'trained'],
] as const) {
  mkdirSync(at(place, 'adapter'), { recursive: true });
  const config = { peft_type: 'LORA', base_model_name_or_path: '../base' };
  writeFileSync(at(place, 'adapter', 'adapter_config.json'), JSON.stringify(config));
  writeFileSync(at(place, 'adapter', 'adapter_model.safetensors'), 'adapter');
  symlinkSync(at(base), at(place, 'base'));
}
mkdirSync(at('linked'));
symlinkSync(at('here', 'adapter'), at('linked', 'adapter'));
symlinkSync(at('trained'), at('linked', 'base'));

it.each([
  ['a path through another folder', at('a'), `${folder}/b/../a/`],
  ['a relative path', at('a'), relative(process.cwd(), at('a'))],
  ['a link', at('a'), at('link')],
  ["a run's folder and its final model", at('run'), at('run', 'final')],
  ['the revision that is meant anyway', 'org/cached', 'org/cached@main'],
  ['a commit that the cache has', 'org/cached', `org/cached@${commit}`],
  ["the hub's cache", 'org/cached', join(cached, 'snapshots', commit)],
  ['a name that was never fetched', 'org/other', 'org/other@main'],
  ['a folder that was moved', at('gone'), at('a')],
  ['a copy', at('one'), at('copy')],
  ['an adapter that was copied with its base', at('here', 'adapter'), at('moved', 'adapter')],
  ['a name whose files were brought along', 'org/other', at('a')],
])('knows a model by %s', async (_, was, is) => {
  expect(await same(was, is)).toBe(true);
});

it.each([
  ['another folder', at('a'), at('b')],
  ['one with other weights of the same size', at('one'), at('trained')],
  ['one with another tokenizer', at('one'), at('spelt')],
  ['one with another chat template', at('one'), at('worded')],
  ['the same adapter beside another base', at('here', 'adapter'), at('elsewhere', 'adapter')],
  ['a link to the adapter beside another base', at('here', 'adapter'), at('linked', 'adapter')],
  ['a folder that is not there', at('a'), at('gone')],
  ['a name on the hub', at('a'), 'org/other'],
  ['another name', 'org/other', 'org/cached'],
  ['another revision', 'org/other', 'org/other@v2'],
  ['a folder beside the cache', 'org/cached', at('a')],
])('tells a model from %s', async (_, was, is) => {
  expect(await same(was, is)).toBe(false);
});
