/** Whether two folders hold the same model, byte by byte: a copied model is still the same. */
import { open, readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** The files that determine what a model computes, as opposed to notes of its training. */
const modelFile =
  /^((adapter_)?config\.json|(tokenizer(_config)?|special_tokens_map|added_tokens)\.json|chat_template\.jinja|.*\.safetensors(\.index\.json)?)$/;
const CHUNK = 8 << 20;

export async function holdSameModel(one: string, other: string): Promise<boolean> {
  const [names, others] = await Promise.all([one, other].map(modelFiles));
  if (names === undefined || !names.some((name) => name.endsWith('.safetensors'))) return false;
  if (names.join('\n') !== others?.join('\n')) return false;
  // All sizes before any bytes: two models rarely have the same sizes.
  for (const isSame of [sameSize, sameBytes])
    for (const name of names) if (!(await isSame(join(one, name), join(other, name)))) return false;
  return true;
}

const modelFiles = async (folder: string) => (await readdir(folder)).filter((name) => modelFile.test(name)).sort();

async function sameSize(one: string, other: string): Promise<boolean> {
  const [a, b] = await Promise.all([stat(one), stat(other)]);
  return a.size === b.size;
}

async function sameBytes(one: string, other: string): Promise<boolean> {
  await using first = await open(one);
  await using second = await open(other);
  const [a, b] = [Buffer.allocUnsafe(CHUNK), Buffer.allocUnsafe(CHUNK)];
  for (let position = 0; ; ) {
    const [read, also] = await Promise.all([first.read(a, 0, CHUNK, position), second.read(b, 0, CHUNK, position)]);
    const count = Math.min(read.bytesRead, also.bytesRead);
    if (a.compare(b, 0, count, 0, count) !== 0) return false;
    if (count === 0) return read.bytesRead === also.bytesRead;
    position += count;
  }
}
