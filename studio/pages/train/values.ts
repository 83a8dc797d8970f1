/** What is typed into the form, and what is sent: only what was given, as the type of its field. */
import type { TrainField, TrainSchema } from '../../../src/studio/api.ts';

/** Text per field; a field that is left alone has none. */
export type Typed = Readonly<Record<string, string>>;

export const fieldsOf = (schema: TrainSchema): TrainField[] => schema.groups.flatMap(({ fields }) => fields);

export function toSend(schema: TrainSchema, typed: Typed): Record<string, unknown> {
  return Object.fromEntries(
    fieldsOf(schema).flatMap((field) => {
      const text = typed[field.name]?.trim() ?? '';
      return text === '' ? [] : [[field.name, read(field, text)]];
    }),
  );
}

/** What cannot be read as its type is sent as it is: the command says what is wrong with it. */
function read({ type }: TrainField, text: string): unknown {
  switch (type) {
    case 'number':
    case 'integer': {
      const value = Number(text);
      return Number.isNaN(value) ? text : value;
    }
    case 'switch':
      return text === 'true' ? true : text === 'false' ? false : text;
    case 'list':
      return text
        .split(',')
        .map((part) => part.trim())
        .filter((part) => part !== '');
    default:
      return text;
  }
}

/** A value of a run or of a link as it would be typed. */
export function asTyped(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return value.join(', ');
  return typeof value === 'object' ? JSON.stringify(value) : String(value);
}

/** The default as the placeholder shows it. */
export function defaultText({ default: usual, required }: TrainField): string {
  if (usual === undefined || usual === null || usual === '') return required ? 'required' : 'not set';
  if (Array.isArray(usual)) return usual.length === 0 ? 'none' : usual.join(', ');
  return asTyped(usual);
}

/** Whether a field is shown for the words that are searched. */
export function matches(field: TrainField, words: string): boolean {
  const text = `${field.name} ${field.flag} ${field.description}`.toLowerCase();
  return words
    .toLowerCase()
    .split(/\s+/)
    .every((word) => text.includes(word));
}
