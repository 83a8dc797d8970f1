/**
 * JSON Schemas as sets of values that can be intersected. A conjunction (schemas that one value must fit at once) is a
 * union of forms. A form is all values of one type within its bounds, or a list of values. The parts of a form (items,
 * members) are again conjunctions; they are evaluated only when needed, so that a schema may refer to itself.
 *
 * Forms follow the standard exactly, except for `oneOf`: there, alternatives must visibly exclude each other.
 */
import { UserError } from '../../errors.ts';
import { SchemaBudget } from './schema-budget.ts';
import { below, type JsonSchema, type Located, listed, type SchemaObject, target } from './schema-keywords.ts';

/** Schemas that one value must fit at once. An empty list allows any value. */
export type Conjunction = readonly Located[];

/**
 * Why a type is allowed: it is named or has a keyword of its own (`stated`), nothing was said (`open`), or the keywords
 * present are about other types (`aside`). By the standard, {"minLength": 2} allows all numbers.
 */
type Stance = 'stated' | 'open' | 'aside';

export interface ObjectForm {
  kind: 'object';
  properties: ReadonlyMap<string, Conjunction>;
  required: ReadonlySet<string>;
  /** What members other than the properties must fit. */
  others: Conjunction;
}
export interface ArrayForm {
  kind: 'array';
  first: readonly Conjunction[];
  rest: Conjunction;
  least: number;
  most: number;
}
type Kind =
  | { kind: 'values'; values: readonly unknown[] }
  | { kind: 'number'; whole: boolean }
  | { kind: 'string'; least: number; most: number }
  | ArrayForm
  | ObjectForm;
export type Form = Kind & { stance: Stance };

const endless = Number.POSITIVE_INFINITY;

/** All values. */
const anything: readonly Form[] = (
  [
    { kind: 'object', properties: new Map(), required: new Set(), others: [] },
    { kind: 'array', first: [], rest: [], least: 0, most: endless },
    { kind: 'string', least: 0, most: endless },
    { kind: 'number', whole: false },
    { kind: 'values', values: [true, false] },
    { kind: 'values', values: [null] },
  ] satisfies Kind[]
).map((kind) => ({ ...kind, stance: 'open' }));

interface Flat {
  key: string;
  plain: { schema: SchemaObject; place: string }[];
  impossible: boolean;
}

export class SchemaForms {
  readonly budget: SchemaBudget;
  readonly #root: JsonSchema;
  readonly #numbers = new Map<SchemaObject, number>();
  readonly #forms = new Map<string, readonly Form[]>();
  readonly #owns = new Map<SchemaObject, readonly Form[]>();
  readonly #filled = new Set<string>();
  readonly #asked = new Set<string>();
  /**
   * The same schemas with `oneOf` read as `anyOf`, which allows more: what is empty there is empty here. It decides
   * whether alternatives exclude each other without recursing into the same question. Undefined in the loose instance
   * itself.
   */
  readonly #loose: SchemaForms | undefined;

  /** The schema must have been checked (`checkSchema`). */
  constructor(root: JsonSchema, budget = new SchemaBudget(), { loose = false } = {}) {
    this.#root = root;
    this.budget = budget;
    this.#loose = loose ? undefined : new SchemaForms(root, budget, { loose: true });
  }

  /** Names a conjunction: two with the same key are the same. */
  keyOf(all: Conjunction): string {
    return this.#flat(all).key;
  }

  /** The forms that may be written. Types that no keyword is about are left out, unless there are no others. */
  written(all: Conjunction): readonly Form[] {
    return preferred(this.forms(all).filter((form) => !this.#isEmptyForm(form)));
  }

  /** Whether no value fits. */
  isEmpty(all: Conjunction): boolean {
    const { key } = this.#flat(all);
    if (this.#filled.has(key)) return false;
    // The smallest fitting value has no part that must fit the same schemas, since that part would be smaller still.
    if (this.#asked.has(key)) return true;
    this.#asked.add(key);
    const empty = this.budget.deeper(() => this.forms(all).every((form) => this.#isEmptyForm(form)));
    this.#asked.delete(key);
    if (!empty) this.#filled.add(key);
    return empty;
  }

  /** The place where nothing fits, if nothing fits as a whole. */
  emptyPlace(all: Conjunction, place: string): string {
    const seen = new Set<string>();
    for (let at = all; ; ) {
      seen.add(this.keyOf(at));
      place = at[0]?.place ?? place;
      const part = this.forms(at)
        .flatMap((form) => needed(form))
        .find((each) => this.isEmpty(each) && !seen.has(this.keyOf(each)));
      if (part === undefined) return place;
      at = part;
    }
  }

  #isEmptyForm(form: Form): boolean {
    this.budget.comparison();
    if (form.kind === 'values') return form.values.length === 0;
    return needed(form).some((part) => this.isEmpty(part));
  }

  forms(all: Conjunction): readonly Form[] {
    const { key, plain, impossible } = this.#flat(all);
    if (impossible) return [];
    let made = this.#forms.get(key);
    if (made === undefined) {
      made = this.budget.deeper(() => this.#made(plain));
      this.#forms.set(key, made);
    }
    return made;
  }

  #made(plain: Flat['plain']): readonly Form[] {
    let forms = anything;
    for (const each of plain) forms = this.#both(forms, this.#own(each));
    for (const each of plain) {
      if (each.schema.anyOf !== undefined)
        forms = listed(each, 'anyOf').flatMap((alternative) => this.#both(forms, this.forms([alternative])));
    }
    for (const each of plain) if (each.schema.oneOf !== undefined) forms = this.#oneOf(forms, each);
    return forms;
  }

  /** Exactly one alternative may fit, so what is written by one must not fit another. */
  #oneOf(base: readonly Form[], at: Flat['plain'][number]): Form[] {
    const allowed = listed(at, 'oneOf').map((each) => this.#both(base, this.forms([each])));
    const loose = this.#loose;
    if (loose === undefined) return allowed.flat();
    const written = allowed.map((forms) => preferred(forms.filter((form) => !loose.#isEmptyForm(form))));
    for (const [i, forms] of written.entries())
      for (const [j, others] of allowed.entries()) {
        // One check per pair is enough if nothing was left out of the other alternative.
        if (i === j || (j < i && written[j]?.length === others.length)) continue;
        if (!forms.some((form) => others.some((other) => loose.#mayMeet(form, other)))) continue;
        throw new UserError(
          `The schema at ${below(at.place, 'oneOf')} has alternatives that a value may fit at once (${Math.min(i, j)} and ${Math.max(i, j)}), which cannot be ruled out while decoding. Use anyOf, or a required property with another const in each.`,
        );
      }
    return written.flat();
  }

  /** Whether a value can have both forms. */
  #mayMeet(a: Form, b: Form): boolean {
    if (a.kind === 'object' && b.kind === 'object') {
      // Only required members can keep them apart; those with fixed values come first, since they usually do.
      const members = [...a.required.union(b.required)].map((name) => [
        ...(a.properties.get(name) ?? a.others),
        ...(b.properties.get(name) ?? b.others),
      ]);
      return ![...members.filter(hasValues), ...members].some((member) => this.isEmpty(member));
    }
    return this.#both([a], [b]).some((form) => !this.#isEmptyForm(form));
  }

  /** All schemas of a conjunction, including those of `$ref` and `allOf`, each once. */
  #flat(all: Conjunction): Flat {
    const found = new Map<SchemaObject, string>();
    let impossible = false;
    const visit = ({ schema, place }: Located): void => {
      if (schema === false) impossible = true;
      if (typeof schema === 'boolean' || found.has(schema)) return;
      found.set(schema, place);
      if (schema.$ref !== undefined) this.budget.deeper(() => visit(target(this.#root, schema.$ref as string, place)));
      for (const each of listed({ schema, place }, 'allOf')) this.budget.deeper(() => visit(each));
    };
    for (const each of all) visit(each);
    const number = (schema: SchemaObject) => {
      if (!this.#numbers.has(schema)) this.#numbers.set(schema, this.#numbers.size);
      return this.#numbers.get(schema) as number;
    };
    const numbers = [...found.keys()].map(number).sort((a, b) => a - b);
    const plain = [...found].map(([schema, place]) => ({ schema, place }));
    return { key: impossible ? 'false' : numbers.join(), plain, impossible };
  }

  /** The forms of a schema's own keywords. */
  #own(at: Flat['plain'][number]): readonly Form[] {
    const known = this.#owns.get(at.schema) ?? this.#ownMade(at);
    this.#owns.set(at.schema, known);
    return known;
  }

  #ownMade({ schema, place }: Flat['plain'][number]): readonly Form[] {
    const types = schema.type === undefined ? undefined : new Set([schema.type].flat());
    const about = (keywords: readonly string[]) => keywords.some((keyword) => schema[keyword] !== undefined);
    const isTyped = Object.values(keywordsOf).some(about);
    const stance = (type: string): Stance =>
      types !== undefined || about(keywordsOf[type] ?? []) ? 'stated' : isTyped ? 'aside' : 'open';
    const at = (keyword: string): Conjunction =>
      schema[keyword] === undefined ? [] : [{ schema: schema[keyword] as JsonSchema, place: below(place, keyword) }];
    const bounds = (least: string, most: string) => ({
      least: Number(schema[least] ?? 0),
      most: Number(schema[most] ?? endless),
    });
    const properties = Object.entries((schema.properties ?? {}) as Record<string, JsonSchema>);
    const all: readonly [type: string, Kind][] = [
      [
        'object',
        {
          kind: 'object',
          properties: new Map(
            properties.map(([name, each]) => [name, [{ schema: each, place: below(place, 'properties', name) }]]),
          ),
          required: new Set((schema.required ?? []) as string[]),
          others: at('additionalProperties'),
        },
      ],
      [
        'array',
        {
          kind: 'array',
          first: listed({ schema, place }, 'prefixItems').map((each) => [each]),
          rest: at('items'),
          ...bounds('minItems', 'maxItems'),
        },
      ],
      ['string', { kind: 'string', ...bounds('minLength', 'maxLength') }],
      ['number', { kind: 'number', whole: false }],
      ['integer', { kind: 'number', whole: true }],
      ['boolean', { kind: 'values', values: [true, false] }],
      ['null', { kind: 'values', values: [null] }],
    ];
    let forms: readonly Form[] = all
      .filter(([type]) => (types === undefined ? type !== 'integer' : types.has(type)))
      .map(([type, kind]) => ({ ...kind, stance: stance(type) }));
    if (Object.hasOwn(schema, 'const'))
      forms = this.#both([{ kind: 'values', values: [schema.const], stance: 'stated' }], forms);
    if (schema.enum !== undefined)
      forms = this.#both([{ kind: 'values', values: schema.enum as unknown[], stance: 'stated' }], forms);
    return forms;
  }

  #both(some: readonly Form[], others: readonly Form[]): Form[] {
    if (some === anything) return [...others];
    return some.flatMap((a) =>
      others.flatMap((b) => {
        this.budget.comparison();
        const both = this.#intersection(a, b);
        if (both === undefined) return [];
        const stances = [a.stance, b.stance];
        const stance = (['stated', 'aside', 'open'] as const).find((each) => stances.includes(each)) as Stance;
        return [{ ...both, stance }];
      }),
    );
  }

  #intersection(a: Kind, b: Kind): Kind | undefined {
    if (a.kind === 'values') return this.#among(a.values, b);
    if (b.kind === 'values') return this.#among(b.values, a);
    if (a.kind === 'number' && b.kind === 'number') return { kind: 'number', whole: a.whole || b.whole };
    if (a.kind === 'string' && b.kind === 'string') {
      const range = { least: Math.max(a.least, b.least), most: Math.min(a.most, b.most) };
      return range.least > range.most ? undefined : { kind: 'string', ...range };
    }
    if (a.kind === 'array' && b.kind === 'array') return arrayOfBoth(a, b);
    if (a.kind === 'object' && b.kind === 'object') return objectOfBoth(a, b);
    return undefined;
  }

  #among(values: readonly unknown[], form: Kind): Kind | undefined {
    const fitting = values.filter((value) => this.#fits(value, form));
    return fitting.length === 0 ? undefined : { kind: 'values', values: fitting };
  }

  #fits(value: unknown, form: Kind): boolean {
    this.budget.comparison();
    if (form.kind === 'values') return setOf(form.values).has(canonical(value));
    if (form.kind === 'number') return typeof value === 'number' && (!form.whole || Number.isInteger(value));
    if (form.kind === 'string')
      return typeof value === 'string' && [...value].length >= form.least && [...value].length <= form.most;
    if (form.kind === 'array') {
      if (!Array.isArray(value) || value.length < form.least || value.length > form.most) return false;
      return value.every((item, i) => this.#fitsAll(item, form.first[i] ?? form.rest));
    }
    if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
    if ([...form.required].some((name) => !Object.hasOwn(value, name))) return false;
    return Object.entries(value).every(([name, member]) =>
      this.#fitsAll(member, form.properties.get(name) ?? form.others),
    );
  }

  #fitsAll(value: unknown, all: Conjunction): boolean {
    return this.budget.deeper(() => this.forms(all).some((form) => this.#fits(value, form)));
  }
}

/** By the standard, a keyword of one type allows all other types if `type` is missing; here it implies that type. */
const keywordsOf: Readonly<Record<string, readonly string[]>> = {
  object: ['properties', 'required', 'additionalProperties'],
  array: ['items', 'prefixItems', 'minItems', 'maxItems'],
  string: ['minLength', 'maxLength'],
};

function preferred(forms: readonly Form[]): readonly Form[] {
  const meant = forms.filter(({ stance }) => stance !== 'aside');
  return meant.length > 0 ? meant : forms;
}

const hasValues = (all: Conjunction): boolean =>
  all.some(({ schema }) => typeof schema === 'object' && ('const' in schema || 'enum' in schema));

/** The parts without which a form has no value. */
function needed(form: Form): Conjunction[] {
  if (form.kind === 'object') return [...form.required].map((name) => form.properties.get(name) ?? form.others);
  if (form.kind !== 'array') return [];
  return [...form.first.slice(0, form.least), ...(form.least > form.first.length ? [form.rest] : [])];
}

function arrayOfBoth(a: ArrayForm, b: ArrayForm): ArrayForm | undefined {
  const [least, most] = [Math.max(a.least, b.least), Math.min(a.most, b.most)];
  if (least > most) return undefined;
  const first = Array.from({ length: Math.max(a.first.length, b.first.length) }, (_, i) => [
    ...(a.first[i] ?? a.rest),
    ...(b.first[i] ?? b.rest),
  ]);
  return { kind: 'array', first, rest: [...a.rest, ...b.rest], least, most };
}

function objectOfBoth(a: ObjectForm, b: ObjectForm): ObjectForm {
  const names = new Set([...a.properties.keys(), ...b.properties.keys()]);
  const both = (name: string) => [...(a.properties.get(name) ?? a.others), ...(b.properties.get(name) ?? b.others)];
  return {
    kind: 'object',
    properties: new Map([...names].map((name) => [name, both(name)])),
    required: a.required.union(b.required),
    others: [...a.others, ...b.others],
  };
}

const sets = new WeakMap<readonly unknown[], ReadonlySet<string>>();

function setOf(values: readonly unknown[]): ReadonlySet<string> {
  const known = sets.get(values) ?? new Set(values.map(canonical));
  sets.set(values, known);
  return known;
}

/** The same text for equal values: the order of an object's members does not matter. */
function canonical(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map(canonical).join()}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(([name, member]) => `${JSON.stringify(name)}:${canonical(member)}`);
  return `{${members.sort().join()}}`;
}
