/** The settings of an instruction, under the names of IFEval's `kwargs`. */
import { RowProblem } from '../../data/shapes/messages.ts';

/** Values by name, as in the row. */
export type Settings = Readonly<Record<string, unknown>>;

const missing = (name: string, kind: string) => new RowProblem(`an instruction lacks its setting "${name}" (${kind})`);

export function text(settings: Settings, name: string): string {
  const value = settings[name];
  if (typeof value === 'string') return value;
  throw missing(name, 'text');
}

export function texts(settings: Settings, name: string): string[] {
  const value = settings[name];
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value;
  throw missing(name, 'a list of texts');
}

export function count(settings: Settings, name: string): number {
  const value = Number(settings[name]);
  if (Number.isFinite(value) && settings[name] !== null) return value;
  throw missing(name, 'a number');
}

/** "less than" a number, or "at least" that many. */
export function within(found: number, settings: Settings, relation: string, limit: string): boolean {
  const how = text(settings, relation);
  const bound = count(settings, limit);
  if (how === 'less than') return found < bound;
  if (how === 'at least') return found >= bound;
  throw new RowProblem(`an instruction's "${relation}" must be "less than" or "at least", this is "${how}"`);
}
