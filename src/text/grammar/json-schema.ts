/**
 * Turns a JSON Schema into a grammar whose sentences are valid documents, without white space.
 *
 *     const grammar = schemaGrammar({ type: 'object', properties: { age: { type: 'integer' } }, required: ['age'] });
 *
 * Keywords that a grammar cannot enforce (bounds of numbers, patterns, unique items) are refused by name. Properties
 * come in the order of the schema; if a schema has any, no others are written.
 */
import { UserError } from '../../errors.ts';
import { choice, type GrammarNode, literal, rule } from './grammar.ts';
import { anyObject, anyValue, inOrder, integer, listOf, mapOf, number, pair, text } from './json-text.ts';
import { SchemaBudget } from './schema-budget.ts';
import { type ArrayForm, type Conjunction, type Form, type ObjectForm, SchemaForms } from './schema-forms.ts';
import { checkSchema, type JsonSchema } from './schema-keywords.ts';

export type { JsonSchema } from './schema-keywords.ts';

/** Any JSON object: what `response_format: { type: 'json_object' }` asks for. */
export const objectGrammar: GrammarNode = anyObject;

/** The grammar of a schema's valid documents. A keyword that it cannot enforce is a UserError that names its place. */
export function schemaGrammar(schema: JsonSchema): GrammarNode {
  checkSchema(schema, new SchemaBudget());
  const forms = new SchemaForms(schema);
  const root = [{ schema, place: '#' }];
  if (forms.isEmpty(root))
    throw new UserError(`No response can fit the schema: nothing is valid at ${forms.emptyPlace(root, '#')}.`);
  return new Compiler(forms).grammar(root);
}

class Compiler {
  readonly #forms: SchemaForms;
  readonly #made = new Map<string, GrammarNode>();

  constructor(forms: SchemaForms) {
    this.#forms = forms;
  }

  /** The grammar of the values that fit all of these schemas; there must be at least one such value. */
  grammar(all: Conjunction): GrammarNode {
    const key = this.#forms.keyOf(all);
    const known = this.#made.get(key);
    if (known !== undefined) return known;
    if (key === '') return anyValue;
    const { budget } = this.#forms;
    budget.part();
    let made: GrammarNode | undefined;
    // For a schema that refers to itself: the reference finds this rule.
    this.#made.set(
      key,
      rule(() => made as GrammarNode),
    );
    made = budget.deeper(() => choice(this.#forms.written(all).map((form) => this.#ofForm(form))));
    this.#made.set(key, made);
    return made;
  }

  #ofForm(form: Form): GrammarNode {
    this.#forms.budget.part();
    if (form.kind === 'values') return choice(form.values.map((value) => this.#exactly(value)));
    if (form.kind === 'number') return form.whole ? integer : number;
    if (form.kind === 'string') return text(form.least, form.most);
    return form.kind === 'array' ? this.#array(form) : this.#object(form);
  }

  /**
   * Properties in order; those not required may be left out. Other members are allowed only if there are no properties.
   */
  #object({ properties, required, others }: ObjectForm): GrammarNode {
    const names = new Set([...properties.keys(), ...required]);
    if (names.size === 0) return this.#forms.isEmpty(others) ? literal('{}') : mapOf(this.grammar(others));
    const members = [...names]
      .map((name) => ({ name, content: properties.get(name) ?? others }))
      .filter(({ content }) => !this.#forms.isEmpty(content));
    return inOrder(
      members.map(({ name, content }) => ({
        node: pair(this.#exactly(name), this.grammar(content)),
        required: required.has(name),
      })),
    );
  }

  /** A list ends before the first item that no value fits. */
  #array({ first, rest, least, most }: ArrayForm): GrammarNode {
    const end = first.findIndex((item) => this.#forms.isEmpty(item));
    if (end >= 0) return this.#list(first.slice(0, end), undefined, least, Math.min(most, end));
    return this.#list(first, rest, least, most);
  }

  #list(first: readonly Conjunction[], rest: Conjunction | undefined, least: number, most: number): GrammarNode {
    const fixed = first.map((item) => this.grammar(item));
    if (rest === undefined || this.#forms.isEmpty(rest))
      return listOf(fixed, anyValue, least, Math.min(most, first.length));
    return listOf(fixed, this.grammar(rest), least, most);
  }

  /** A value or a name as JSON text. */
  #exactly(value: unknown): GrammarNode {
    const written = JSON.stringify(value);
    this.#forms.budget.part();
    this.#forms.budget.characters(written.length);
    return literal(written);
  }
}
