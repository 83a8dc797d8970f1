/**
 * llama.cpp by way of node-llama-cpp, as judge of the files that we export and as a peer for speed. It is not among our
 * dependencies: a plain install of it brings hundreds of megabytes for GPUs. So it is put into build/llama-cpp when it is first
 * asked for, without them and with the one prebuilt library of this platform.
 */
import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { promisify } from 'node:util';

const VERSION = '3.22.1';
const folder = join(import.meta.dirname, '../../build', `llama-cpp-${VERSION}`);
const entry = join('node_modules', 'node-llama-cpp', 'dist', 'index.js');

/** What is used of it. Tokens are numbers there too. */
export interface LlamaSequence {
  controlledEvaluate(
    input: (number | [number, { generateNext: { logits: true } }])[],
  ): Promise<({ next: { logits?: Map<number, number> } } | undefined)[]>;
  evaluate(tokens: number[], options: { temperature: 0 }): AsyncGenerator<number>;
  clearHistory(): Promise<void>;
  dispose(): void;
}
export interface LlamaContext {
  getSequence(): LlamaSequence;
  dispose(): Promise<void>;
}
export interface LlamaModel {
  tokenize(text: string, specialTokens?: boolean): number[];
  detokenize(tokens: readonly number[]): string;
  createContext(options: Record<string, unknown>): Promise<LlamaContext>;
  dispose(): Promise<void>;
  readonly fileInfo: { metadata: { tokenizer: { chat_template?: string } } };
  readonly tokens: { bos: number | null; eos: number | null; shouldPrependBosToken: boolean };
}
export interface Llama {
  loadModel(options: { modelPath: string; gpuLayers: 0; useMmap?: boolean }): Promise<LlamaModel>;
  dispose(): Promise<void>;
}

/** llama.cpp, or why it is not to be had here. */
export async function llamaCpp(): Promise<{ llama: Llama } | { missing: string }> {
  const platform = `${process.platform}-${process.arch}`;
  if (!['linux-x64', 'linux-arm64'].includes(platform)) return { missing: `no library for ${platform} is listed here` };
  try {
    if (!existsSync(join(folder, entry))) await install(`@node-llama-cpp/${platform}`);
    const { getLlama } = await import(pathToFileURL(join(folder, entry)).href);
    return { llama: await getLlama({ gpu: false, build: 'never', logLevel: 'error', progressLogs: false }) };
  } catch (error) {
    return {
      missing: String((error as Error).message)
        .split('\n')
        .slice(0, 3)
        .join(' '),
    };
  }
}

/** Beside and renamed: of two that come at once, one wins and both are served. */
async function install(library: string): Promise<void> {
  mkdirSync(join(folder, '..'), { recursive: true });
  const beside = mkdtempSync(`${folder}.`);
  try {
    writeFileSync(join(beside, 'package.json'), '{ "private": true }');
    const packages = [`node-llama-cpp@${VERSION}`, `${library}@${VERSION}`];
    const quiet = ['--no-save', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts', '--omit=optional'];
    await promisify(execFile)('npm', ['install', '--fetch-retries=1', ...quiet, ...packages], { cwd: beside });
    if (!existsSync(folder)) renameSync(beside, folder);
  } finally {
    rmSync(beside, { recursive: true, force: true });
  }
}

/** In f32 throughout: by default llama.cpp keeps keys and values in f16. */
export const exact = {
  ...{ contextSize: 512, batchSize: 512, threads: 1, flashAttention: false },
  ...{ experimentalKvCacheKeyType: 'F32', experimentalKvCacheValueType: 'F32' },
};

/** The logits after each of these tokens. */
export async function logitsOf(model: LlamaModel, ids: readonly number[], vocabSize: number): Promise<number[][]> {
  const context = await model.createContext(exact);
  try {
    const ask = { generateNext: { logits: true } } as const;
    const outputs = await context.getSequence().controlledEvaluate(ids.map((id) => [id, ask]));
    return outputs.map((output) =>
      Array.from({ length: vocabSize }, (_, id) => output?.next.logits?.get(id) ?? Number.NaN),
    );
  } finally {
    await context.dispose();
  }
}

/** What it writes by itself, taking the likeliest token each time. */
export async function greedy(model: LlamaModel, prompt: readonly number[], count: number): Promise<number[]> {
  const context = await model.createContext(exact);
  try {
    const written: number[] = [];
    for await (const token of context.getSequence().evaluate([...prompt], { temperature: 0 })) {
      written.push(token);
      if (written.length >= count) break;
    }
    return written;
  } finally {
    await context.dispose();
  }
}
