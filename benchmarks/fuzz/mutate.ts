/** Damage to an input: of its bytes, or of one place in its JSON. */
import type { Random } from '../../src/random.ts';

const odd: (() => unknown)[] = [
  () => null,
  () => true,
  () => -1,
  () => 0,
  () => 0.5,
  () => 1e9,
  () => 2 ** 53,
  () => -1e308,
  () => '',
  () => 'x'.repeat(100_000),
  () => '\u0000\ud800',
  () => '../../../etc/passwd',
  () => '(a+)+$',
  () => [],
  () => {},
  () => [[[[[]]]]],
  () => JSON.parse('{"__proto__": {"x": 1}, "constructor": 1, "length": -1}'),
  () => JSON.parse(`${'['.repeat(3000)}${']'.repeat(3000)}`),
];

/** One to four hurts somewhere in the bytes. */
export function hurtBytes(bytes: Buffer, random: Random): Buffer {
  let result = Buffer.from(bytes);
  for (let times = random.int(1, 4); times > 0; times--) {
    const at = random.int(0, Math.max(0, result.length - 1));
    const length = Math.min(random.int(1, 16), result.length - at);
    const piece = result.subarray(at, at + length);
    const choices = [
      () => Buffer.concat([result.subarray(0, at), result.subarray(at + length)]),
      () => Buffer.concat([result.subarray(0, at), piece, piece, result.subarray(at)]),
      () => result.subarray(0, at),
      () => replaced(result, at, Buffer.alloc(length, 0xff)),
      () => replaced(result, at, Buffer.alloc(length, 0)),
      () => replaced(result, at, Buffer.from(Array.from({ length }, () => random.int(0, 255)))),
      () => replaced(result, at, Buffer.from([random.int(0, 255)])),
      () => Buffer.concat([result.subarray(0, at), Buffer.from(random.pick(['"', '{', '[', '\n', ',', '\\', '9e99']))]),
    ];
    result = Buffer.from(random.pick(choices)());
  }
  return result;
}

function replaced(bytes: Buffer, at: number, piece: Buffer): Buffer {
  return Buffer.concat([bytes.subarray(0, at), piece, bytes.subarray(at + piece.length)]);
}

/** The same value with one to three places in it changed, removed or added. */
export function hurtJson(value: unknown, random: Random): unknown {
  const root = { value: structuredClone(value) };
  for (let times = random.int(1, 3); times > 0; times--) {
    const places: [parent: Record<string, unknown>, key: string][] = [];
    collect(root, places);
    if (places.length === 0) break;
    const [parent, key] = random.pick(places);
    const choice = random.int(0, 9);
    if (choice === 0) delete parent[key];
    else if (choice === 1) parent[`${key}_`] = parent[key];
    else if (choice === 2 && Array.isArray(parent)) parent.push(...parent);
    else parent[key] = random.pick(odd)();
  }
  return root.value;
}

/** Every place; of long lists and tables only some, so that the others are not drowned. */
function collect(node: unknown, places: [Record<string, unknown>, string][], depth = 0): void {
  if (typeof node !== 'object' || node === null || depth > 30) return;
  for (const key of Object.keys(node).slice(0, 40)) {
    places.push([node as Record<string, unknown>, key]);
    collect((node as Record<string, unknown>)[key], places, depth + 1);
  }
}
