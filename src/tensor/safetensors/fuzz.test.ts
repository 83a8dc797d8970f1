/** Files and headers mutated at random give a SafetensorsError or a readable file, never a crash. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { liveTensors, ones, openSafetensors, SafetensorsError, scope, writeSafetensors, zeros } from '../index.ts';
import { parseHeader } from './header.ts';

const folder = mkdtempSync(join(tmpdir(), 'attune-mutants-'));
afterAll(() => rmSync(folder, { recursive: true }));
const at = (name: string) => join(folder, name);

describe('fuzz', () => {
  // mulberry32: the same mutations every time
  let state = 7;
  const random = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const below = (n: number) => Math.floor(random() * n);
  const words = [
    '-1',
    '0',
    '9007199254740993',
    '18446744073709551616',
    '1e999',
    '1.5',
    'null',
    '[]',
    '{}',
    '"F32"',
    '"__proto__"',
    ':',
    ',',
    ']',
    '}',
    '"',
    '\\u0000',
    'F64',
    'I8',
    '4',
    '8',
    '12',
  ];

  function mutate(bytes: Uint8Array): Uint8Array {
    let out = Uint8Array.from(bytes);
    for (let i = below(3); i >= 0; i--) {
      const place = below(out.length || 1);
      const kind = random();
      if (kind < 0.35) out[place] = below(256);
      else if (kind < 0.5) out[place] = (out[place] ?? 0) ^ (1 << below(8));
      else if (kind < 0.6) out = out.slice(0, place);
      else if (kind < 0.7)
        out = Uint8Array.of(...out.slice(0, place), ...new Uint8Array(below(16)), ...out.slice(place));
      else if (kind < 0.8) out = Uint8Array.of(...out.slice(0, place), ...out.slice(place + below(12)));
      else {
        const word = new TextEncoder().encode(words[below(words.length)] as string);
        out = Uint8Array.of(
          ...out.slice(0, place),
          ...word,
          ...out.slice(random() < 0.5 ? place : place + word.length),
        );
      }
    }
    return out;
  }

  /** A valid header promises only what lies inside the file. */
  function checkInside(
    tensors: ReadonlyMap<string, { offset: number; bytes: number; shape: readonly number[] }>,
    size: number,
  ): void {
    for (const info of tensors.values()) {
      if (
        !(
          info.offset >= 8 &&
          info.bytes >= 0 &&
          info.offset + info.bytes <= size &&
          info.shape.every((n) => Number.isSafeInteger(n) && n >= 0)
        )
      ) {
        throw new Error(`promises ${JSON.stringify(info)} of ${size} bytes`);
      }
    }
  }

  const seedFile = () => {
    writeSafetensors(
      at('seed'),
      [
        ['a', ones([2, 3])],
        ['bb', ones([4], { dtype: 'int64' })],
        ['__proto__', ones([3], { dtype: 'bool' })],
        ['e', zeros([0])],
      ],
      { format: 'pt', k: 'v' },
    );
    return new Uint8Array(readFileSync(at('seed')));
  };

  it('20,000 mutated headers: a SafetensorsError or a header that keeps inside the file', () => {
    const bytes = seedFile();
    const length = Number(new DataView(bytes.buffer).getBigUint64(0, true));
    const header = bytes.slice(8, 8 + length);
    let valid = 0;
    for (let i = 0; i < 20_000; i++) {
      const text = mutate(header);
      const size = 8 + text.length + (random() < 0.9 ? bytes.length - 8 - length : below(200));
      try {
        checkInside(parseHeader('fuzz', text, size).tensors, size);
        valid++;
      } catch (error) {
        if (!(error instanceof SafetensorsError)) throw error;
      }
    }
    expect(valid).toBeGreaterThan(20);
    expect(valid).toBeLessThan(10_000);
  });

  it('3,000 mutated files, opened and read: a SafetensorsError or tensors that can be read', () => {
    const bytes = seedFile();
    const before = liveTensors();
    let read = 0;
    for (let i = 0; i < 3000; i++) {
      writeFileSync(at('mutant'), mutate(bytes));
      try {
        scope(() => {
          using opened = openSafetensors(at('mutant'));
          for (const name of opened.names) {
            opened.tensor(name).data();
            read++;
          }
        });
      } catch (error) {
        if (!(error instanceof SafetensorsError)) throw error;
      }
    }
    expect(read).toBeGreaterThan(100);
    expect(liveTensors()).toBe(before);
  });
});
