/**
 * An entry of a table by a name that somebody else wrote. "constructor" and "__proto__" are no entries, though every
 * object has them.
 */
export function lookup<Value>(table: Readonly<Record<string, Value>>, name: string): Value | undefined {
  return Object.hasOwn(table, name) ? table[name] : undefined;
}
