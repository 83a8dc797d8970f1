import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { Command } from 'commander';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { attune } from '../../tests/support/command-line.ts';
import { UserError } from '../errors.ts';
import { register } from './tokenizer.ts';

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'attune-tokenizer-'));
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true, force: true });
});

async function train(file: string, out: string): Promise<string> {
  vi.spyOn(process.stdout, 'write').mockReturnValue(true);
  vi.spyOn(process.stderr, 'write').mockReturnValue(true);
  const program = new Command('attune').exitOverride();
  register(program);
  const options = ['--field', 'chosen', '--vocab-size', '300', '--out', join(folder, out)];
  await program.parseAsync(['tokenizer', 'train', '--files', file, ...options], { from: 'user' });
  return readFileSync(join(folder, out, 'tokenizer.json'), 'utf8');
}

it('learns the same from a compressed file, and cuts lines at line feeds only', async () => {
  const rows = Array.from({ length: 50 }, (_, i) =>
    JSON.stringify({ chosen: `the colour of\u2028number ${i} is blue` }),
  );
  const [plain, packed] = [join(folder, 'rows.jsonl'), join(folder, 'rows.jsonl.gz')];
  writeFileSync(plain, rows.join('\n'));
  writeFileSync(packed, gzipSync(rows.join('\n')));
  expect(await train(packed, 'b')).toBe(await train(plain, 'a'));
});

it('says which file is missing or broken', async () => {
  await expect(train(join(folder, 'none.jsonl'), 'c')).rejects.toThrow(/none\.jsonl: no such file/);
  const broken = join(folder, 'cut.jsonl.gz');
  writeFileSync(broken, gzipSync('{"chosen": "text"}\n'.repeat(100)).subarray(0, 40));
  await expect(train(broken, 'd')).rejects.toThrow(UserError);
});

it('refuses what is no text in UTF-8', async () => {
  const file = join(folder, 'latin.jsonl');
  writeFileSync(
    file,
    Buffer.concat([Buffer.from('{"chosen": "yes"}\n'), Buffer.from('{"chosen": "café"}\n', 'latin1')]),
  );
  await expect(train(file, 'e')).rejects.toThrow(/latin\.jsonl:2 is not valid UTF-8/);
  writeFileSync(file, Buffer.from([0xff, 0xfe, 0x41, 0x00, 0x0a, 0x00]));
  expect((await attune('tasks', 'score', file)).err).toContain('latin.jsonl:1 is not valid UTF-8');
});

it('reads chats whose messages have parts, and refuses what has no text', async () => {
  const chat = (content: unknown) => `${JSON.stringify({ chosen: [{ role: 'user', content }] })}\n`;
  const [texts, parts, other] = ['texts', 'parts', 'other'].map((name) => join(folder, `${name}.jsonl`)) as [
    string,
    string,
    string,
  ];
  writeFileSync(texts, chat('red blue red blue').repeat(9));
  writeFileSync(
    parts,
    chat([
      { type: 'text', text: 'red blue' },
      { type: 'text', text: ' red blue' },
    ]).repeat(9),
  );
  expect(await train(parts, 'parts')).toBe(await train(texts, 'texts'));
  writeFileSync(other, chat('red') + chat([{ type: 'image_url', image_url: 'x' }]));
  await expect(train(other, 'other')).rejects.toThrow(/other\.jsonl:2 has a message without text: its "content" is \[/);
  writeFileSync(other, `${JSON.stringify({ chosen: ['red'] })}\n`);
  await expect(train(other, 'other')).rejects.toThrow(/other\.jsonl:1 has a message without text/);
});

it('refuses --field where no file has fields', async () => {
  const file = join(folder, 'rows.txt');
  writeFileSync(file, 'red blue\n'.repeat(9));
  await expect(train(file, 'x')).rejects.toThrow(/--field: has no effect here: no file is \.jsonl/);
});

it('says where the vocabulary is smaller than asked for, and names options as they are typed', async () => {
  const file = join(folder, 'texts.txt');
  writeFileSync(file, 'the cat sat on the mat\n'.repeat(9));
  const train = (size: string) =>
    attune('tokenizer', 'train', '--files', file, '--vocab-size', size, '--out', join(folder, size));
  const few = await train('100000');
  expect([few.code, few.err]).toEqual([0, expect.stringContaining('That is fewer than --vocab-size 100000: ')]);
  expect((await train('260')).err).not.toContain('fewer');
  const none = await train('10');
  expect([none.code, none.err]).toEqual([
    2,
    expect.stringContaining('--vocab-size must be a whole number of at least'),
  ]);
});

it('checks a chat template before anything is read or written', async () => {
  const [text, template, out] = ['texts.txt', 'chat.jinja', 'out'].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  writeFileSync(text, 'the cat sat on the mat\n'.repeat(9));
  const train = (source: string, files = text) => {
    writeFileSync(template, source);
    const options = ['--files', files, '--vocab-size', '260', '--out', out, '--chat-template', template];
    return attune('tokenizer', 'train', ...options);
  };
  const refused = (reason: string) => ({ code: 2, err: expect.stringContaining(reason) });
  const open = '{% for m in messages %}{{ m.content }}';
  expect(await train(open, join(folder, 'missing.txt'))).toMatchObject(
    refused(`--chat-template cannot be used: The chat template cannot be parsed`),
  );
  expect(await train(`${open}{{ m.content | nonsense }}{% endfor %}`)).toMatchObject(refused('nonsense'));
  expect(await train('{{ messages[0].content }}')).toMatchObject(refused('it leaves out what the assistant says'));
  expect(await train('')).toMatchObject(refused('it leaves out what the user says'));
  expect(existsSync(out)).toBe(false);
  const alternating = `{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('no') }}{% endif %}{{ m.content }}{{ eos_token }}{% endfor %}`;
  expect(await train(alternating)).toMatchObject({ code: 0 });
  expect(JSON.parse(readFileSync(join(out, 'tokenizer_config.json'), 'utf8')).chat_template).toBe(alternating);
});
