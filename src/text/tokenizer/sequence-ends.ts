/**
 * The ids before and after a plain text. An explicit add_bos_token/add_eos_token in tokenizer_config.json
 * decides (Llama, Mistral, Qwen); otherwise the post-processor of tokenizer.json does (Llama 3, BLOOM, GPT-2: none).
 */
import type { TokenizerFiles, TokenizerJson } from './files.ts';

export interface SequenceEnds {
  before: number[];
  after: number[];
}

export function sequenceEnds(
  files: TokenizerFiles,
  bosId: number | undefined,
  eosId: number | undefined,
): SequenceEnds {
  if (files.addBos === undefined && files.addEos === undefined) return fromProcessor(files.json.post_processor);
  return {
    before: files.addBos && bosId !== undefined ? [bosId] : [],
    after: files.addEos && eosId !== undefined ? [eosId] : [],
  };
}

function fromProcessor(step: TokenizerJson['post_processor']): SequenceEnds {
  const ends: SequenceEnds = { before: [], after: [] };
  if (step == null) return ends;
  for (const inner of step.processors ?? []) {
    const { before, after } = fromProcessor(inner);
    ends.before.unshift(...before);
    ends.after.push(...after);
  }
  let side = ends.before;
  for (const part of step.single ?? []) {
    if ('Sequence' in part) side = ends.after;
    else side.push(...(step.special_tokens?.[part.SpecialToken.id]?.ids ?? []));
  }
  if (step.cls !== undefined) ends.before.unshift(step.cls[1]);
  if (step.sep !== undefined) ends.after.push(step.sep[1]);
  return ends;
}
