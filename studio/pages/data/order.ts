/** Which response of a pair is shown first: by chance, so that its place says nothing, but the same after a reload. */
import type { DataExample } from '../../../src/studio/api.ts';

export function firstShown(dataset: string, index: number): 'chosen' | 'rejected' {
  return hash(`${dataset}#${index}`) % 2 === 0 ? 'chosen' : 'rejected';
}

/** The two responses in the order shown. */
export function inOrder({ responses }: DataExample, first: 'chosen' | 'rejected'): { name: string; text: string }[] {
  const chosen = responses.find(({ name }) => name === 'chosen');
  const rejected = responses.find(({ name }) => name === 'rejected');
  if (!chosen || !rejected) return [];
  return first === 'chosen' ? [chosen, rejected] : [rejected, chosen];
}

/** FNV-1a with a final mix (MurmurHash3's), so that its lowest bit depends on the whole text. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) value = Math.imul(value ^ text.charCodeAt(i), 0x01000193);
  value = Math.imul(value ^ (value >>> 16), 0x85ebca6b);
  value = Math.imul(value ^ (value >>> 13), 0xc2b2ae35);
  return (value ^ (value >>> 16)) >>> 0;
}
