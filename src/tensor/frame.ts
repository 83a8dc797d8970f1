/**
 * Arguments of operators in memory that the addon reads (native/door/direct/frame.h), which saves a Node-API call for
 * each. An operator with a common signature (`direct`) is called this way if its arguments are numbers, booleans,
 * tensors, lists of these, dtypes and devices. Everything else goes through `native.call`, which also words the errors.
 */
import { whenLoaded } from './engine/native.ts';
import { Tensor } from './tensor.ts';

const LENGTH = 512;
const frame = new Float64Array(LENGTH);

const [NONE, NUMBER, BOOLEAN, TENSOR, NUMBERS, TENSORS, DTYPE, DEVICE] = [1, 2, 3, 4, 5, 6, 7, 8];
const ABSENT = 0;

/** The frame's first number after a call, if it is not the result's handle. */
export const NULL = -1;
export const DECLINED = -2;

/** The numbers of dtypes and devices, by name. */
const named = new Map<string, { tag: number; code: number }>();
named.set('cpu', { tag: DEVICE, code: -2 });
named.set('cuda', { tag: DEVICE, code: -1 });
for (let i = 0; i < 16; i++) named.set(`cuda:${i}`, { tag: DEVICE, code: i });

whenLoaded((addon) => {
  addon.useFrame(frame);
  for (const [name, code] of Object.entries(addon.dtypeCodes())) named.set(name, { tag: DTYPE, code });
});

let turn = 0;

/** Writes a call into the frame. False if an argument is of another kind, or if there are too many. */
export function writeCall(id: number, args: readonly unknown[]): boolean {
  turn = (turn + 1) | 0;
  const mine = turn;
  const count = args.length;
  let at = 2;
  for (let i = 0; i < count; i++) {
    if (at + 2 > LENGTH) return false;
    const value = args[i];
    if (value instanceof Tensor) {
      frame[at] = TENSOR as number;
      frame[at + 1] = value.handle;
    } else if (typeof value === 'number') {
      frame[at] = NUMBER as number;
      frame[at + 1] = value;
    } else if (typeof value === 'boolean') {
      frame[at] = BOOLEAN as number;
      frame[at + 1] = value ? 1 : 0;
    } else if (value === undefined) {
      frame[at] = ABSENT;
    } else if (value === null) {
      frame[at] = NONE as number;
    } else if (Array.isArray(value)) {
      const length = writeList(value, at);
      if (length < 0) return false;
      at += length;
    } else {
      const known = typeof value === 'string' ? named.get(value) : undefined;
      if (known === undefined) return false;
      frame[at] = known.tag;
      frame[at + 1] = known.code;
    }
    at += 2;
  }
  frame[0] = id;
  frame[1] = count;
  // A caller's getter (an element of a list, for example) may have called another operator meanwhile.
  return turn === mine;
}

/** Writes a list of numbers, or of tensors and null, and returns its length; −1 if it is neither. */
function writeList(list: readonly unknown[], at: number): number {
  const length = list.length;
  if (at + 2 + length > LENGTH) return -1;
  const numbers = typeof list[0] === 'number' || length === 0;
  frame[at] = (numbers ? NUMBERS : TENSORS) as number;
  frame[at + 1] = length;
  for (let i = 0; i < length; i++) {
    const item = list[i];
    if (numbers) {
      if (typeof item !== 'number') return -1;
      frame[at + 2 + i] = item;
    } else {
      if (!(item instanceof Tensor) && item !== null) return -1;
      frame[at + 2 + i] = item === null ? NULL : item.handle;
    }
  }
  return length;
}

/** The outcome of the call: the handle of the tensor it returns, or one of the numbers above. */
export function outcome(): number {
  return frame[0] as number;
}
