/**
 * The safetensors format: 8 bytes of header length, a JSON header, then the tensors' bytes. Files are
 * read lazily through a memory map.
 *
 *     using file = openSafetensors('model.safetensors');
 *     file.tensor('model.norm.weight');
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { suggestion } from '../../errors.ts';
import { native } from '../engine/native.ts';
import { Tensor } from '../tensor.ts';
import { isRecord, readHeader, SafetensorsError, type TensorInfo } from './header.ts';

export { SafetensorsError, type TensorInfo } from './header.ts';
export { writeSafetensors } from './writer.ts';

/** An open safetensors file. Its tensors share the mapped bytes and stay valid after it is closed. */
export class SafetensorsFile {
  readonly path: string;
  readonly metadata: Readonly<Record<string, string>>;
  readonly #tensors: Map<string, TensorInfo>;
  readonly #mapping: number;
  #open = true;

  constructor(path: string) {
    const header = readHeader(path);
    const mapping = refused(path, () => native.mapFile(path));
    for (const [name, info] of header.tensors) {
      if (info.offset + info.bytes > mapping.bytes) {
        native.unmapFile(mapping.id);
        throw new SafetensorsError(`${path}: tensor "${name}" lies beyond the end of the file`);
      }
    }
    this.path = path;
    this.metadata = header.metadata;
    this.#tensors = header.tensors;
    this.#mapping = mapping.id;
  }
  get names(): string[] {
    return [...this.#tensors.keys()];
  }
  has(name: string): boolean {
    return this.#tensors.has(name);
  }
  info(name: string): TensorInfo {
    const info = this.#tensors.get(name);
    if (info === undefined)
      throw new SafetensorsError(`${this.path}: no tensor "${name}".${suggestion(name, this.#tensors.keys())}`);
    return info;
  }
  /** A tensor over the mapped bytes, without a copy. Writing to it does not change the file. */
  tensor(name: string): Tensor {
    const info = this.info(name);
    if (!this.#open) throw new SafetensorsError(`${this.path}: the file is closed`);
    return new Tensor(
      refused(`${this.path}: tensor "${name}"`, () =>
        native.mapTensor(this.#mapping, info.offset, info.dtype, info.shape),
      ),
    );
  }
  close(): void {
    if (this.#open) native.unmapFile(this.#mapping);
    this.#open = false;
  }
  [Symbol.dispose](): void {
    this.close();
  }
}

/** Turns an error of the addon into one about the file: the file is at fault, or this libtorch lacks the dtype. */
function refused<T>(where: string, call: () => T): T {
  try {
    return call();
  } catch (error) {
    throw new SafetensorsError(`${where}: ${(error as Error).message}`);
  }
}

/** Opens a safetensors file and checks its header; tensors are read on demand. */
export function openSafetensors(path: string): SafetensorsFile {
  return new SafetensorsFile(path);
}

/** The tensors of a model folder by name, from one safetensors file or from shards with their index. */
export class Checkpoint {
  readonly #files = new Map<string, SafetensorsFile>();
  readonly #where = new Map<string, SafetensorsFile>();

  /** Opens a folder with `<base>.safetensors` or `<base>.safetensors.index.json` and its shards. */
  constructor(folder: string, base = 'model') {
    const single = join(folder, `${base}.safetensors`);
    const index = join(folder, `${base}.safetensors.index.json`);
    try {
      if (existsSync(single)) {
        const file = this.#add(single);
        for (const name of file.names) this.#where.set(name, file);
      } else if (existsSync(index)) {
        this.#addShards(folder, index);
      } else {
        throw new SafetensorsError(
          `${folder}: neither ${base}.safetensors nor ${base}.safetensors.index.json is there`,
        );
      }
    } catch (error) {
      this.close();
      throw error;
    }
  }
  #add(path: string): SafetensorsFile {
    const file = openSafetensors(path);
    this.#files.set(basename(path), file);
    return file;
  }
  #addShards(folder: string, index: string): void {
    let map: unknown;
    try {
      map = (JSON.parse(readFileSync(index, 'utf8')) as { weight_map?: unknown } | null)?.weight_map;
    } catch (error) {
      throw new SafetensorsError(`${index}: not valid JSON (${(error as Error).message})`);
    }
    if (!isRecord(map)) throw new SafetensorsError(`${index}: no weight_map`);
    for (const [name, shard] of Object.entries(map)) {
      if (typeof shard !== 'string' || !shard.endsWith('.safetensors') || basename(shard) !== shard)
        throw new SafetensorsError(`${index}: "${name}" points to ${JSON.stringify(shard)}`);
      const file = this.#files.get(shard) ?? this.#add(join(folder, shard));
      if (!file.has(name))
        throw new SafetensorsError(`${index}: says "${name}" is in ${shard}, which has no such tensor`);
      this.#where.set(name, file);
    }
  }
  get names(): string[] {
    return [...this.#where.keys()];
  }
  has(name: string): boolean {
    return this.#where.has(name);
  }
  info(name: string): TensorInfo {
    return this.#fileOf(name).info(name);
  }
  tensor(name: string): Tensor {
    return this.#fileOf(name).tensor(name);
  }
  #fileOf(name: string): SafetensorsFile {
    const file = this.#where.get(name);
    if (file === undefined)
      throw new SafetensorsError(`no tensor "${name}" in the checkpoint.${suggestion(name, this.#where.keys())}`);
    return file;
  }
  close(): void {
    for (const file of this.#files.values()) file.close();
  }
  [Symbol.dispose](): void {
    this.close();
  }
}
