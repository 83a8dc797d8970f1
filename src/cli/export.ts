/**
 * attune export merged M [--adapter A] --out DIR
 * attune export gguf M [--adapter A] --type q8_0 --out m.gguf
 */
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'commander';
import { z } from 'zod';
import { exportGguf, exportMerged, ggufTypes } from '../models/index.ts';
import { field } from '../runs/index.ts';
import { quoted } from '../shell.ts';
import { registerCommand } from './options/command.ts';
import { overwriteField } from './options/model-fields.ts';
import { checkOutputFile, checkOutputFolder } from './options/outputs.ts';
import { shown } from './options/training.ts';
import { consoleProgress } from './terminal/console.ts';
import { print, tell } from './terminal/print.ts';

const source = {
  model: field(z.string(), { description: 'a folder, an adapter, or a name on the hub' }),
  adapter: field(z.string().optional(), { description: 'an adapter to put on the model: its folder or hub name' }),
};

export const exportMergedSchema = z.object({
  ...source,
  dtype: field(z.enum(['float32', 'bfloat16', 'float16']).optional(), {
    description: 'of the weights; as stored where left out',
  }),
  out: field(z.string(), { description: 'the folder to make' }),
});

export const exportGgufSchema = z.object({
  ...source,
  type: field(z.enum(ggufTypes).default('q8_0'), {
    description: 'how matrices are written; vectors are f32 always, and the head of a q4_0 file is q8_0',
  }),
  out: field(z.string(), { description: 'the file to write', examples: ['m.gguf'] }),
  overwrite: overwriteField,
});

export function register(program: Command): void {
  const group = program.command('export').description('a model for other programs');
  registerCommand(group, {
    name: 'merged',
    description: "one model folder without adapters, in Hugging Face's format, the tokenizer along",
    schema: exportMergedSchema,
    words: ['model'],
    examples: ['attune export merged --model Qwen/Qwen3-0.6B --adapter checkpoints/dpo/run/final --out ./merged'],
    async run(config) {
      checkOutputFolder('--out', config.out);
      const { folder, dtype, tokenizer } = await exportMerged(config, { progress: consoleProgress() });
      print(
        `${shown(folder)}: weights in ${dtype}${tokenizer ? ', tokenizer' : '; no tokenizer was there to go with them'}`,
      );
    },
  });
  registerCommand(group, {
    name: 'gguf',
    description: 'a GGUF file for llama.cpp, with a Modelfile for Ollama beside it; read back after writing',
    schema: exportGgufSchema,
    words: ['model'],
    examples: ['attune export gguf --model models/tiny --type q8_0 --out tiny.gguf'],
    async run(config) {
      checkOutputFile('--out', config.out);
      const out = resolve(config.out);
      const plain = join(dirname(out), 'Modelfile');
      const earlier = [out, plain, out.replace(/\.gguf$/, '.Modelfile')].filter((path) => existsSync(path));
      const made = await exportGguf(config, { progress: consoleProgress() });
      for (const path of earlier)
        if (path === made.path || path === made.modelfile) tell(`${shown(path)} of an earlier export is replaced.`);
      if (made.modelfile !== plain)
        tell(`${shown(plain)} is there for another model and stays: this one has ${shown(made.modelfile)}.`);
      for (const note of made.notes) tell(`note: ${note}`);
      const size = (made.bytes / 2 ** 20).toFixed(1);
      print(
        `${shown(made.path)}: ${made.architecture} in ${config.type}, ${made.tensors} tensors, ${size} MiB; read back and whole`,
      );
      print(`${shown(made.modelfile)}: ollama create my-model -f ${quoted(shown(made.modelfile))}`);
    },
  });
}
