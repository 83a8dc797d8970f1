/** What every command has from its schema: help, spellings, files, faults together; and what is typed wrongly most often. */
import { cpSync, mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { speakTo } from '../spelling.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-commands-'));
afterAll(() => rmSync(folder, { recursive: true }));
const written = (name: string, text: string) => {
  writeFileSync(join(folder, name), text);
  return join(folder, name);
};

const commands = [
  'generate',
  'score',
  'explore',
  'tasks list',
  'tasks show',
  'tasks score',
  'tasks generate',
  'tokenizer train',
  'tokenizer encode',
  'tokenizer decode',
  'inspect',
  'rollouts',
  'replay',
  'demo',
  'compare',
  'evaluate reward',
  'evaluate policy',
  'evaluate benchmark',
  'preferences build',
  'quantize reward',
  'quantize policy',
  'export merged',
  'export gguf',
].map((command) => command.split(' '));

describe('every command comes from a schema', () => {
  it.each(commands.map((words) => [words.join(' '), words] as const))('%s', async (_, words) => {
    const help = await attune(...words, '--help');
    expect([help.code, help.out]).toEqual([0, expect.stringContaining('--config <value>')]);
    expect(help.out).not.toMatch(/default:\s*[;)]/);
    const file = written('unknown.yaml', 'sead: 1\nno_such_field: 2\n');
    const { code, err } = await attune(...words, '--config', file);
    expect(code).toBe(2);
    expect(err).toMatch(/no_such_field: is not a known field\. \(in .*unknown\.yaml\)/);
    expect(err).toMatch(/sead: is not a known field/);
  });

  it('names options as they are typed', async () => {
    speakTo('program');
    expect((await attune('generate', '--top-p', '2')).err).toContain('--top-p');
  });

  it('reports all faults at once, required ones and the nearest name among them', async () => {
    const { code, err } = await attune('generate', '--top-p', '2', '--dtype', 'float23', '--max_new_tokens', 'many');
    expect(code).toBe(2);
    expect(err).toMatch(/4 faults:/);
    expect(err).toContain('--model: is required: expected text.');
    expect(err).toContain('--top-p: expected a number at most 1, got 2.');
    expect(err).toContain('got "float23". Did you mean "float32"?');
    expect(err).toContain('--max-new-tokens: expected a number, got "many".');
  });

  it.each(['config.json', 'tokenizer.json', 'model.safetensors'])(
    'a model with a damaged %s is a mistake: exit code 2',
    async (name) => {
      const broken = join(folder, `broken-${name}`);
      cpSync(join(import.meta.dirname, '../../models/tiny'), broken, { recursive: true });
      truncateSync(join(broken, name), 100);
      const { code, err } = await attune('generate', '--model', broken, '--prompt', 'a');
      expect([code, err]).toEqual([2, expect.stringContaining(name)]);
    },
  );

  it('reads a file under the command line', async () => {
    const file = written('show.yaml', 'name: gcd\ndifficulty: 1\ncount: 3\njson: true\n');
    expect((await attune('tasks', 'show', '--config', file)).out.trim().split('\n')).toHaveLength(3);
    expect((await attune('tasks', 'show', '--config', file, '--count', '2')).out.trim().split('\n')).toHaveLength(2);
    const spelled = await attune('tasks', 'show', 'gcd', '--difficulty=1', '--no-json');
    expect([spelled.code, spelled.out]).toEqual([0, expect.stringContaining('difficulty 1, seed 1')]);
  });

  it('refuses a word beside the option that says the same', async () => {
    const { code, err } = await attune('tasks', 'show', 'gcd', '--name', 'gcd');
    expect([code, err]).toEqual([2, 'attune: --name is given twice: also as "gcd".\n']);
  });
});

describe('verbs', () => {
  it.each([
    [['train', 'rewrad', '--model', 'x'], 'There is no "attune train rewrad". Did you mean "reward"?'],
    [['train', '--dry-run', 'polcy'], 'Did you mean "policy"?'],
    [['train', 'foo'], 'There is no "attune train foo". train takes one of: sft, reward, policy, preference.'],
    [['tasks', 'shwo', 'gcd'], 'Did you mean "show"?'],
    [['evaluate', 'rewards'], 'Did you mean "reward"?'],
    [['train', 'grpo'], 'Type: attune train policy --algorithm grpo.'],
    [['train', 'dpo', '--model', 'x'], 'Type: attune train preference --loss dpo.'],
  ])('%j', async (args, message) => {
    const { code, err } = await attune(...args);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });
});

describe('unknown names', () => {
  it.each([
    ['an alias of an option', ['train', 'policy', '--lerning_rate', '3'], '(Did you mean --learning-rate?)'],
    ['an option of a command above', ['train', 'policy', '--resume', 'x'], '(Did you mean --resume-from?)'],
    [
      'the beginning of one',
      ['train', 'policy', '--gradient-acc', '3'],
      '(Did you mean --gradient-accumulation-steps?)',
    ],
    ["another program's option", ['train', 'policy', '--rollout-batch-size', '3'], 'rollout_slots says how many'],
    ['a command', ['trian'], '(Did you mean train?)'],
    ['the beginning of a command', ['eval', 'policy'], '(Did you mean evaluate?)'],
  ])('%s', async (_, args, message) => {
    const { code, err } = await attune(...args);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });
});

describe('options of training before the verb', () => {
  const data = written('pairs.jsonl', '{"prompt":"a","chosen":"b","rejected":"c"}\n');
  it('count as if they stood after it', async () => {
    const file = written('rm.yaml', 'lr: 0.5\nbogus: 1\n');
    const { code, err } = await attune('train', '--dry-run', '--config', file, 'reward', '--dataset', data);
    expect([code, err]).toEqual([2, expect.stringContaining('bogus: is not a known field')]);
    const place = await attune('train', '--output-dir', join(data, 'x'), 'reward', '--dataset', data);
    expect([place.code, place.err]).toEqual([2, expect.stringMatching(/--output-dir .* cannot be written/)]);
  });

  it('are refused where the verb has none of that name, or twice', async () => {
    const pipeline = await attune('train', '--model-index', '1', 'reward', '--dataset', data);
    expect(pipeline.err).toContain('--model-index belongs to pipelines');
    const twice = await attune('train', '--output-dir', 'a', 'reward', '--output-dir', 'b');
    expect([twice.code, twice.err]).toEqual([2, expect.stringContaining('--output-dir is given twice')]);
  });
});

describe('places are checked before the work', () => {
  const file = written('a-file', 'x');
  const cases: [string, string[]][] = [
    ['--output-dir', ['explore', file, '--output-dir', '/proc/nope']],
    ['--out', ['score', file, '--checkpoint', 'no/model', '--out', join(file, 'x')]],
    ['--out', ['tasks', 'generate', '--kind', 'sft', '--tasks', 'gcd', '--out', join(file, 'x')]],
    ['--out', ['tokenizer', 'train', '--files', file, '--vocab-size', '300', '--out', join(file, 'x')]],
    ['--output-dir', ['evaluate', 'reward', '--checkpoint', 'no', '--task', 'gcd', '--output-dir', join(file, 'x')]],
    ['--output-dir', ['evaluate', 'policy', '--task', 'gcd', '--output-dir', join(file, 'x')]],
    ['--output-dir', ['compare', '--task', 'gcd', '--output-dir', join(file, 'x')]],
    ['--output', ['preferences', 'build', '--task', 'gcd', '--output', join(file, 'x')]],
    ['--save-logits', ['inspect', 'no', '--ids', '1', '--save-logits', join(file, 'x')]],
    ['--output-dir', ['demo', '--output-dir', join(file, 'x')]],
    ['--output-dir', ['train', 'policy', '--task', 'gcd', '--output-dir', join(file, 'x')]],
    ['--log-dir', ['train', 'sft', '--output-dir', folder, '--log-dir', join(file, 'x')]],
  ];
  it.each(cases)('%s of %j', async (option, args) => {
    const { code, err } = await attune(...args);
    expect([code, err]).toEqual([2, expect.stringMatching(new RegExp(`^attune: ${option} .* cannot be written: `))]);
  });

  it('a run name is checked in a dry run too', async () => {
    const args = ['train', 'policy', '--task', 'gcd', '--output-dir', folder, '--dry-run'];
    const { code, err } = await attune(...args, '--run-name', '../../evil');
    expect([code, err]).toEqual([2, expect.stringContaining('--run-name "../../evil" cannot be a run\'s name')]);
    const long = await attune(...args, '--run-name', 'é'.repeat(128));
    expect([long.code, long.err]).toEqual([2, expect.stringMatching(/--run-name "é+…" .* it has 256 bytes/)]);
  });

  it('an input is never written over', async () => {
    for (const args of [
      ['score', file, '--checkpoint', 'no/model', '--out', file],
      ['preferences', 'build', '--dataset', file, '--output', file],
    ]) {
      const { code, err } = await attune(...args);
      expect([code, err]).toEqual([2, expect.stringContaining('an input is never written over')]);
    }
  });

  it('a tokenizer that is there is not replaced unasked', async () => {
    written('tokenizer.json', '{}');
    const args = ['tokenizer', 'train', '--files', file, '--vocab-size', '300', '--out', folder];
    expect((await attune(...args)).err).toContain('holds a tokenizer already');
  });
});

describe('an option that would do nothing is refused', () => {
  const data = join(folder, 'none.jsonl');
  const noted = written('notes.md', '# Notes\n');
  const cases: [string, string[]][] = [
    ['--limit: has no effect here: --best and --worst', ['rollouts', 'no/run', '--best', '3', '--limit', '1']],
    ['--device: has no effect here: nothing is computed', ['inspect', 'no/model', '--device', 'cuda:7']],
    ['--max-length: has no effect here: tokens are counted', ['explore', data, '--max-length', '5']],
    ['--model: has no effect here: tokens are those', ['explore', data, '--model', 'no/a', '--tokenizer', 'no/b']],
    ['--seed: has no effect here: nothing is drawn', ['explore', data, '--seed', '3']],
    ['--page: has no effect here: without the number', ['learn', '--page']],
    ['--seed: has no effect here: nothing is run', ['learn', '1', '--no-run', '--seed', '3']],
    ['--output-dir: has no effect here: nothing is written', ['learn', '1', '--no-run', '--output-dir', folder]],
    ['--log-prompts: has no effect here: no request', ['serve', 'no/model', '--quiet', '--log-prompts']],
    ['--votes: votes are between two models', ['chat', 'no/model', '--votes', join(folder, 'votes.jsonl')]],
    [`--votes ${noted} holds something else than preferences`, ['chat', 'no/a', 'no/b', '--votes', noted]],
    [`--votes ${noted}/x: ${noted} is no folder`, ['chat', 'no/a', 'no/b', '--votes', `${noted}/x`]],
  ];
  it.each(cases)('%s', async (message, args) => {
    const { code, err } = await attune(...args);
    expect([code, err]).toEqual([2, expect.stringContaining(message)]);
  });

  it('votes are added to votes', async () => {
    const votes = written('votes.jsonl', '{"prompt": [], "chosen": "a", "rejected": "b"}\n');
    expect((await attune('chat', './no-a', './no-b', '--votes', votes)).err).not.toContain('--votes');
  });
});

it('explore says that it replaces what was found before', async () => {
  const rows = written('rows.jsonl', '{"prompt": "a", "chosen": "b", "rejected": "c"}\n'.repeat(4));
  const explore = () => attune('explore', rows, '--output-dir', join(folder, 'twice'));
  expect((await explore()).err).not.toContain('replaced');
  expect((await explore()).err).toMatch(
    /analysis_results\.json of .* will be replaced; --output-dir keeps results apart/,
  );
});

it('explore names the broken row where all are broken', async () => {
  const broken = written('broken.jsonl', '{"prompt": "a", \n{"prompt":\n');
  const { code, err } = await attune('explore', broken, '--output-dir', join(folder, 'explored'));
  expect([code, err]).toEqual([2, expect.stringMatching(/broken\.jsonl:1/)]);
});

it('attune chat --help says which numbers its options take', async () => {
  const { out } = await attune('chat', '--help');
  expect(out).toMatch(/--max-tokens .*64 to\s+2048/s);
  expect(out).toMatch(/--temperature .*to\s+1\.5/s);
});
