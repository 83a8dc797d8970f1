/**
 * What was expected of a value and what it was, in words, for a fault that zod found.
 *
 *     expectation(issue, 'lots');      // expected a number, got "lots".
 */
import type { z } from 'zod';
import { nearest } from './errors.ts';

type Issue = z.core.$ZodIssue;

const redacted = '[redacted]';

/** `secret` values are not shown. */
export function expectation(issue: Issue, value: unknown, { secret = false } = {}): string {
  const got = secret ? redacted : shortJson(value);
  if (issue.code === 'custom') return issue.message;
  const wanted = wantedBy(issue);
  if (typeof value === 'number' && !Number.isFinite(value)) return `expected a finite number, got ${value}.`;
  if (value === undefined) return `is required: expected ${wanted}.`;
  if (issue.code === 'invalid_value') {
    const near = typeof value === 'string' ? nearest(value, issue.values.map(String)) : undefined;
    return `expected ${wanted}, got ${got}.${near === undefined ? '' : ` Did you mean "${near}"?`}`;
  }
  return `expected ${wanted}, got ${got}.`;
}

const kindNames: Record<string, string> = {
  number: 'a number',
  int: 'a whole number',
  string: 'text',
  boolean: 'true or false',
  array: 'a list',
  object: 'fields',
  record: 'fields',
};

function wantedBy(issue: Issue): string {
  if (issue.code === 'invalid_type') return kindNames[issue.expected] ?? issue.expected;
  if (issue.code === 'invalid_value') {
    return issue.values.length === 1 ? shortJson(issue.values[0]) : `one of ${issue.values.map(String).join(', ')}`;
  }
  if (issue.code === 'too_small') return bound(issue.origin, issue.inclusive ? 'at least' : 'more than', issue.minimum);
  if (issue.code === 'too_big') return bound(issue.origin, issue.inclusive ? 'at most' : 'less than', issue.maximum);
  if (issue.code === 'invalid_union')
    return [...new Set(issue.errors.flat().map((part) => wantedBy(part as Issue)))].join(' or ');
  return issue.message;
}

function bound(of: string, relation: string, limit: number | bigint): string {
  if (of === 'string') return `text of ${relation} ${limit} character${Number(limit) === 1 ? '' : 's'}`;
  if (of === 'array') return `a list of ${relation} ${limit} item${Number(limit) === 1 ? '' : 's'}`;
  return `a number ${relation} ${limit}`;
}

function shortJson(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}
