/**
 * Reads a Hugging Face config.json strictly: a wrong type or an unsupported value is refused with the field's name. It records
 * which fields were read, so that the rest can be checked (foreign.ts).
 */
import { UserError } from '../../errors.ts';
import { lookup } from '../../lookup.ts';
import { readRope } from './rope-fields.ts';
import type { Activation, ConfigReader, RopeOptions } from './spec.ts';

/** transformers' names of activations (ACT2FN) → ours. */
const activations: Record<string, Activation> = {
  gelu: 'gelu',
  gelu_python: 'gelu',
  gelu_new: 'gelu_tanh',
  gelu_fast: 'gelu_tanh',
  gelu_accurate: 'gelu_tanh',
  gelu_pytorch_tanh: 'gelu_tanh',
  gelu_python_tanh: 'gelu_tanh',
  quick_gelu: 'quick_gelu',
  relu: 'relu',
  relu2: 'relu2',
  silu: 'silu',
  swish: 'silu',
  tanh: 'tanh',
};

/** A larger number is a typing error or an attack: memory would be allocated before any other check could fail. */
const LARGEST_SIZE = 2 ** 31;
const largest: Record<string, number> = {
  num_hidden_layers: 4096,
  num_attention_heads: 65_536,
  num_key_value_heads: 65_536,
  head_dim: 65_536,
  hidden_size: 2 ** 20,
  intermediate_size: 2 ** 24,
  vocab_size: 2 ** 24,
};

export class Reader implements ConfigReader {
  readonly source: string;
  readonly #fields: Record<string, unknown>;
  readonly #aliases: Record<string, string[]>;
  readonly #seen = new Set<string>();

  constructor(config: object, source: string, aliases: Record<string, string[]> = {}) {
    this.#fields = config as Record<string, unknown>;
    this.source = source;
    this.#aliases = aliases;
  }

  int(name: string, fallback?: number): number {
    const value = this.#given(name, fallback);
    if (typeof value !== 'number' || !Number.isSafeInteger(value)) this.#wrongKind(name, 'a whole number', value);
    return value;
  }

  size(name: string, fallback?: number): number {
    const value = this.int(name, fallback);
    if (value < 1) this.fail(name, `must be above zero, not ${value}`);
    const most = largest[name] ?? LARGEST_SIZE;
    if (value > most) this.fail(name, `is ${value}; no model has more than ${most}`);
    return value;
  }

  sizeOrNull(name: string, absent: number | null): number | null {
    const value = this.#look(name);
    if (value === undefined) return absent;
    return value === null ? null : this.size(name);
  }

  number(name: string, fallback?: number): number {
    const value = this.#given(name, fallback);
    if (typeof value !== 'number' || !Number.isFinite(value)) this.#wrongKind(name, 'a number', value);
    return value;
  }

  bool(name: string, fallback?: boolean): boolean {
    const value = this.#given(name, fallback);
    if (typeof value !== 'boolean') this.#wrongKind(name, 'true or false', value);
    return value;
  }

  string(name: string, fallback?: string): string {
    const value = this.#given(name, fallback);
    if (typeof value !== 'string') this.#wrongKind(name, 'a string', value);
    return value;
  }

  optional<T = unknown>(name: string): T | null {
    return (this.#look(name) ?? null) as T | null;
  }

  only(name: string, values: readonly unknown[], why: string): void {
    const value = this.#look(name);
    if (value === undefined || values.includes(value)) return;
    this.fail(name, `is ${JSON.stringify(value)}: ${why}`);
  }

  activation(name: string, fallback: string): Activation {
    const value = this.string(name, fallback);
    const known = lookup(activations, value);
    if (known === undefined) {
      this.fail(
        name,
        `is "${value}", an activation that is not supported. Known: ${Object.keys(activations).join(', ')}.`,
      );
    }
    return known;
  }

  rope(options: RopeOptions): ReturnType<ConfigReader['rope']> {
    return readRope(this, options);
  }

  /** The fields that were not read. */
  unread(): [name: string, value: unknown][] {
    return Object.entries(this.#fields).filter(([name]) => !this.#seen.has(name));
  }

  fail(name: string, message: string): never {
    throw new UserError(`${this.source}: ${name} ${message}`);
  }

  /** The field under its own name or an alias; if both are given they must agree. */
  #look(name: string): unknown {
    let found: unknown;
    let foundAs = name;
    for (const candidate of [name, ...(this.#aliases[name] ?? [])]) {
      this.#seen.add(candidate);
      const value = this.#fields[candidate];
      if (value === undefined) continue;
      if (found !== undefined && found !== null && value !== null && found !== value) {
        this.fail(
          foundAs,
          `is ${JSON.stringify(found)} but ${candidate}, another name of it, is ${JSON.stringify(value)}: remove one`,
        );
      }
      if (found === undefined || found === null) {
        found = value;
        foundAs = candidate;
      }
    }
    return found;
  }

  #given(name: string, fallback: unknown): unknown {
    const value = this.#look(name);
    if (value !== undefined) return value;
    if (fallback === undefined) this.fail(name, 'is missing');
    return fallback;
  }

  #wrongKind(name: string, expected: string, value: unknown): never {
    this.fail(name, `must be ${expected}, not ${JSON.stringify(value)}`);
  }
}
