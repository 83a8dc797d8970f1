/**
 * Opens a suite of questions: a known name, a file, a folder, a hub name, or rows in memory.
 *
 *     const suite = await openSuite('gsm8k', { limit: 100 });
 *     suite.questions[0].text; suite.format.name;
 */
import { existsSync } from 'node:fs';
import type { DatasetSpec } from '../../data/index.ts';
import { parseHubName } from '../../data/sources/hub.ts';
import { suggestion, UserError } from '../../errors.ts';
import type { Progress } from '../../progress.ts';
import { Random } from '../../random.ts';
import { readSuite, suiteRows } from '../suite-rows.ts';
import { lettered } from './choice.ts';
import { type AnyFormat, formatNamed, formatOf } from './formats.ts';
import { type KnownSuite, knownSuite, knownSuites } from './known.ts';
import { asLetters } from './letters.ts';
import type { ChoiceFormat, Question } from './question.ts';

/** `choice` compares log-probs of choices; `generate` lets the model write. */
export type Mode = 'generate' | 'choice';

/** The questions to ask, and how to read them. */
export interface SuiteOptions {
  /** The format of the rows. Default: detected from the first row. */
  format?: string;
  /** Default by format: log-prob for choices, generation for everything else. */
  mode?: Mode;
  /** Whether choices are compared by text or by letter. Default by format. */
  choices?: 'text' | 'letters';
  split?: string;
  subset?: string;
  /** At most this many questions, sampled under the seed. */
  limit?: number;
  seed?: number;
  progress?: Progress;
}

/** A set of questions, ready to be asked. */
export interface Suite {
  name: string;
  format: AnyFormat;
  mode: Mode;
  questions: Question[];
  /** Indices of the questions in the whole set. */
  places: number[];
  /** All questions of the set, including those left out by the limit. */
  all: readonly Question[];
  /** The source of its rows, from which few-shot examples are read too. */
  source: DatasetSpec;
  subset?: string;
  known?: KnownSuite;
}

/** Opens a suite of questions. */
export async function openSuite(spec: DatasetSpec, options: SuiteOptions = {}): Promise<Suite> {
  const { limit, seed = 42, progress } = options;
  const known = typeof spec === 'string' && !existsSync(spec) ? knownSuite(spec) : undefined;
  const name = typeof spec === 'string' ? spec : 'the rows given';
  checkName(spec, known);
  const source = known?.repo ?? spec;
  const { split = known?.split, subset = known?.subset } = options;
  const named = options.format ?? known?.format;
  let format = named === undefined ? undefined : formatFor(formatNamed(named), options);
  const rows = await suiteRows(source, {
    ...{ split, subset, progress },
    without: known?.without,
    isKnown: known !== undefined,
  });
  const all = await readSuite(rows, name, (row, subject): Question => {
    format ??= formatFor(formatOf(row, name), options);
    return { ...(subject !== undefined && { subject }), ...format.read(row) };
  });
  const chosen = format as AnyFormat;
  const order = Array.from(all, (_, i) => i);
  const places =
    limit === undefined || limit >= all.length
      ? order
      : new Random('benchmark limit', seed).sample(order, limit).sort((a, b) => a - b);
  return {
    name,
    format: chosen,
    mode: chosen.kind === 'choice' ? 'choice' : 'generate',
    source,
    known,
    questions: places.map((place) => all[place] as Question),
    places,
    all,
    ...(subset !== undefined && { subset }),
  };
}

function checkName(spec: DatasetSpec, known: KnownSuite | undefined): void {
  if (typeof spec !== 'string' || known !== undefined || existsSync(spec) || parseHubName(spec) !== undefined) return;
  if (/[./\\]/.test(spec)) return;
  const names = knownSuites.map((suite) => suite.name);
  throw new UserError(
    `--suite ${spec}: neither a file nor a known suite.${suggestion(spec, names)} Known are ${names.join(', ')}; any other set by its path or its hub name (org/name).`,
  );
}

function formatFor(format: AnyFormat, { mode, choices }: SuiteOptions): AnyFormat {
  if (format.kind !== 'choice') {
    if (mode === 'choice')
      throw new UserError(
        `--mode choice: questions of the format ${format.name} have no choices; leave the option out.`,
      );
    return format;
  }
  const asked = format as ChoiceFormat;
  if (mode === 'generate') return asLetters(asked);
  if (choices === undefined) return asked;
  return choices === 'letters' ? lettered(asked) : (asked.texts ?? asked);
}
