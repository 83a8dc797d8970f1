/** Finds which column has which role. Common names are known; any role can be assigned a column by hand. */
import { nearest, suggestion, UserError } from '../../errors.ts';
import { isRow, kindOf, type Row } from '../sources/row.ts';
import { RowProblem, toMessages } from './messages.ts';
import type { Message } from './shapes.ts';

const aliases = {
  prompt: ['prompt', 'question', 'instruction', 'query', 'problem', 'input'],
  system: ['system', 'system_prompt'],
  chosen: ['chosen', 'chosen_response', 'preferred', 'response_j'],
  rejected: ['rejected', 'rejected_response', 'dispreferred', 'response_k'],
  completion: ['completion', 'response', 'output', 'solution', 'answer'],
  label: ['label', 'is_correct', 'correct'],
  messages: ['messages', 'conversations', 'conversation', 'dialog', 'dialogue'],
  text: ['text', 'content', 'story', 'document'],
  answer: ['answer', 'final_answer', 'ground_truth', 'reference_answer', 'target'],
  steps: ['steps', 'completions', 'process'],
  stepLabels: ['labels', 'step_labels', 'ratings'],
  margin: ['margin'],
  scoreChosen: [
    'score_chosen',
    'chosen_score',
    'chosen-rating',
    'chosen_rating',
    'chosen_avg_rating',
    'metadata.score_chosen',
  ],
  scoreRejected: [
    'score_rejected',
    'rejected_score',
    'rejected-rating',
    'rejected_rating',
    'rejected_avg_rating',
    'metadata.score_rejected',
  ],
  source: ['source', 'classification', 'subset', 'category', 'task'],
} as const;

/** Roles that may be missing in some rows of a set. */
const sometimes = new Set<ColumnRole>(['system', 'margin', 'scoreChosen', 'scoreRejected', 'source']);

/** What a column holds: prompt, chosen, rejected, … */
export type ColumnRole = keyof typeof aliases;
/** Column names by role, for sets whose columns are not recognised. */
export type ColumnNames = Partial<Record<ColumnRole, string>>;

/** All column roles. */
export const columnRoles = Object.keys(aliases) as ColumnRole[];

/** The roles of a row's columns. */
export class Columns {
  readonly names: readonly string[];
  readonly #found = new Map<ColumnRole, string>();

  constructor(row: Row, given: ColumnNames, where: string) {
    this.names = Object.keys(row);
    for (const [role, name] of Object.entries(given) as [ColumnRole, string | undefined][]) {
      if (name === undefined) continue;
      if (!hasColumn(row, name)) throw missingColumn(where, name, this.names);
      this.#found.set(role, name);
    }
    const taken = new Set(this.#found.values());
    for (const role of columnRoles) {
      if (this.#found.has(role)) continue;
      const name = aliases[role].find((alias) => !taken.has(alias) && hasColumn(row, alias));
      if (name !== undefined) this.#found.set(role, name);
    }
  }

  has(...roles: ColumnRole[]): boolean {
    return roles.every((role) => this.#found.has(role));
  }

  name(role: ColumnRole): string {
    return this.#found.get(role) ?? role;
  }

  get(row: Row, role: ColumnRole): unknown {
    const name = this.#nameIn(row, role);
    return name === undefined ? undefined : valueAt(row, name);
  }

  #nameIn(row: Row, role: ColumnRole): string | undefined {
    const name = this.#found.get(role);
    // JSON rows omit columns without a value, so the first row may not have these.
    if (name !== undefined || !sometimes.has(role)) return name;
    return aliases[role].find((alias) => hasColumn(row, alias));
  }

  /** The value of a role that this row must have. */
  need(row: Row, role: ColumnRole): unknown {
    const value = this.get(row, role);
    if (value !== undefined && value !== null) return value;
    const there = Object.keys(row);
    throw new RowProblem(`no value in "${this.name(role)}" (the row has ${there.join(', ') || 'no columns'})`);
  }

  text(row: Row, role: ColumnRole): string {
    const value = this.need(row, role);
    if (typeof value === 'string') return value;
    if (typeof value === 'number') return String(value);
    throw new RowProblem(`"${this.name(role)}" must be text, this is a ${kindOf(value)}`);
  }

  number(row: Row, role: ColumnRole): number | undefined {
    const value = this.get(row, role);
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
    return typeof number === 'number' && Number.isFinite(number) ? number : undefined;
  }

  /** The number of a role that this row must have; it must fit float32. */
  needNumber(row: Row, role: ColumnRole): number {
    const number = this.number(row, role);
    if (number !== undefined && Number.isFinite(Math.fround(number))) return number;
    const value = this.need(row, role);
    const told = typeof value === 'number' ? String(value) : JSON.stringify(value);
    throw new RowProblem(`"${this.#nameIn(row, role)}" must be a number (of float32's range), this is ${told}`);
  }

  flag(row: Row, role: ColumnRole): boolean {
    return toFlag(this.need(row, role), this.name(role));
  }

  /** The prompt column, or else the message list, after the system prompt if there is one. */
  prompt(row: Row): Message[] {
    const role = this.has('prompt') ? 'prompt' : 'messages';
    const messages = toMessages(this.need(row, role), this.name(role));
    return messages[0]?.role === 'system' ? messages : [...this.system(row), ...messages];
  }

  /** The columns besides the prompt's, with values that JSON can hold. */
  others(row: Row): Record<string, unknown> {
    const prompt = this.name(this.has('prompt') ? 'prompt' : 'messages');
    return Object.fromEntries(
      Object.entries(row).filter(
        ([name, value]) => name !== prompt && ['string', 'number', 'boolean', 'object'].includes(typeof value),
      ),
    );
  }

  system(row: Row): Message[] {
    const system = this.get(row, 'system');
    return typeof system === 'string' && system !== '' ? [{ role: 'system', content: system }] : [];
  }
}

export function toFlag(value: unknown, column: string): boolean {
  if (typeof value === 'boolean') return value;
  const text = String(value).trim().toLowerCase();
  if (['1', 'true', 'yes', '+', '+1', 'good', 'correct', 'desirable'].includes(text)) return true;
  if (['0', '-1', 'false', 'no', '-', 'bad', 'incorrect', 'undesirable'].includes(text)) return false;
  throw new RowProblem(`"${column}" must be true or false, this is ${JSON.stringify(value)}`);
}

export function missingColumn(where: string, wanted: string, there: readonly string[]): UserError {
  return new UserError(
    `${where}: no column "${wanted}". The columns are ${there.join(', ')}.${suggestion(wanted, there)}`,
  );
}

/** The roles that a command line can give to a column. */
const nameableRoles: ColumnRole[] = ['prompt', 'chosen', 'rejected', 'completion', 'label', 'messages', 'text'];

/** The error for a row without the columns of a shape: what was expected and what is there. */
export function unrecognised(where: string, there: readonly string[], shape: string, roles: ColumnRole[]): UserError {
  const free = there.filter(
    (name) => !Object.values(aliases).some((names) => (names as readonly string[]).includes(name)),
  );
  const wanted = roles.length === 0 ? nameableRoles : roles;
  const hints = wanted
    .map((role) => [role, nearest(role, free)] as const)
    .filter((hint) => hint[1] !== undefined)
    .map(([role, name]) => `Is "${name}" the ${role}? Then say --${role}-column ${name}.`);
  const needs =
    roles.length === 0
      ? ' It needs chosen and rejected, prompt, completion and label, messages, or text; a column of another name is named with --chosen-column and its kin.'
      : ` ${withArticle(shape).replace('a', 'A')} set needs ${roles.join(' and ')}.`;
  return new UserError(
    [
      `${where}: the columns ${there.join(', ') || '(none)'} do not make ${withArticle(shape)} set.${needs}`,
      ...hints,
    ].join(' '),
  );
}

function hasColumn(row: Row, name: string): boolean {
  return valueAt(row, name) !== undefined;
}

/** A column, or a field inside one: `metadata.score_chosen`. */
function valueAt(row: Row, name: string): unknown {
  if (Object.hasOwn(row, name)) return row[name];
  const dot = name.indexOf('.');
  if (dot < 0) return undefined;
  const outer = row[name.slice(0, dot)];
  return isRow(outer) ? valueAt(outer, name.slice(dot + 1)) : undefined;
}

/** `a graded`, `an unpaired`. */
export const withArticle = (word: string): string => `${/^[aeiou]/.test(word) ? 'an' : 'a'} ${word}`;
