/** The same model in llama.cpp: exported as GGUF, decoded greedily by as many sequences at once and with as many threads. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { exportGguf, type GgufType } from '../../src/models/index.ts';
import type { Llama } from '../../tests/llama-cpp/llama-cpp.ts';
import { randomIds } from '../support/shapes.ts';
import { PROMPT, type TimedDecoding } from './decoding.ts';

/** Names for every id: a model of random weights has no words. */
export function addTokenizer(folder: string, vocabulary: number): void {
  const vocab = Object.fromEntries(Array.from({ length: vocabulary }, (_, id) => [`t${id}`, id]));
  const step = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  const json = {
    version: '1.0',
    added_tokens: [],
    pre_tokenizer: step,
    decoder: step,
    model: { type: 'BPE', vocab, merges: [] },
  };
  writeFileSync(join(folder, 'tokenizer.json'), JSON.stringify(json));
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ bos_token: 't0', eos_token: 't1' }));
}

export interface LlamaModel {
  bytes: number;
  decoding(batch: number): Promise<TimedDecoding>;
  dispose(): Promise<void>;
}

export async function openLlama(
  llama: Llama,
  { folder, type, vocabulary, threads }: { folder: string; type: GgufType; vocabulary: number; threads: number },
): Promise<LlamaModel> {
  const { path, bytes } = await exportGguf({ model: folder, type, out: join(folder, `${type}.gguf`), overwrite: true });
  const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 });
  return {
    bytes,
    dispose: () => model.dispose(),
    async decoding(batch) {
      const context = await model.createContext({
        contextSize: 256,
        batchSize: 256,
        sequences: batch,
        threads,
        flashAttention: false,
        experimentalKvCacheKeyType: 'F32',
        experimentalKvCacheValueType: 'F32',
      });
      const sequences = Array.from({ length: batch }, () => context.getSequence());
      return async (tokens) => {
        for (const sequence of sequences) await sequence.clearHistory();
        const start = performance.now();
        await Promise.all(
          sequences.map(async (sequence, i) => {
            let written = 0;
            const prompt = randomIds(PROMPT, vocabulary, i);
            for await (const _ of sequence.evaluate(prompt, { temperature: 0 })) if (++written >= tokens) break;
          }),
        );
        return performance.now() - start;
      };
    },
  };
}
