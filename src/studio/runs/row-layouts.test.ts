/** Rows read by their layout against JSON.parse, number by number and bit by bit. */
import { describe, expect, it } from 'vitest';
import { Random } from '../../random.ts';
import { RowLayouts } from './row-layouts.ts';

function read(line: string, first: object) {
  const layouts = new RowLayouts();
  layouts.learn({ ...first });
  const bytes = Buffer.from(`before\n${line}\nafter`);
  const found = layouts.read(bytes, 7, 7 + line.length);
  return found && Object.fromEntries(found.names.map((name, i) => [name, found.values[i]]));
}

describe('rows by their layout', () => {
  it('have the numbers that JSON.parse gives', () => {
    const random = new Random('row layouts');
    const bits = new DataView(new ArrayBuffer(8));
    const numbers = [0, -0, 1, -1, 0.1 + 0.2, 1e-7, 5e-324, 1.7976931348623157e308, 123456789012345680, 2 ** 53 - 1];
    for (let i = 0; i < 3000; i++) {
      bits.setUint32(0, random.int(0, 0xffffffff));
      bits.setUint32(4, random.int(0, 0xffffffff));
      const value = bits.getFloat64(0);
      if (Number.isFinite(value)) numbers.push(value, Math.fround(value % 1000), Number((value % 1000).toPrecision(6)));
    }
    for (const value of numbers) {
      const line = Object.is(value, -0) ? '{"step":1,"a/b":-0}' : JSON.stringify({ step: 1, 'a/b': value });
      expect([line, read(line, { step: 9, 'a/b': 9 })]).toEqual([line, JSON.parse(line)]);
    }
  });

  it('are left to JSON.parse where anything differs', () => {
    const first = { step: 1, 'a"b': 2 };
    expect(read('{"step":7,"a\\"b":0.25}', first)).toEqual({ step: 7, 'a"b': 0.25 });
    const others = [
      ...['{"step":7}', '{"step":7,"a\\"b":"NaN"}', '{"step":7,"a\\"b":null}', '{"step":7,"a\\"b":1,"c":2}', '{}', ''],
      ...[
        '{"a\\"b":1,"step":7}',
        '{"step":7,"a\\"b":}',
        '{"step":7,"a\\"b":1',
        '{"step":7,"a\\"b":1}}',
        '{"step":-,"a\\"b":1}',
      ],
      ...['{"step":7,"a\\"b":1.2.3}', '{"step":7, "a\\"b":1}', '{"step":7,"a\\"b":e}', '{"step":7,"a\\"b":[1]}'],
    ];
    for (const line of others) expect([line, read(line, first)]).toEqual([line, undefined]);
  });
});
