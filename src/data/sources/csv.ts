/** Comma- or tab-separated tables after RFC 4180: quotes, doubled quotes, line ends inside quotes, LF or CRLF. */
import { UserError } from '../../errors.ts';
import { fileBytes } from './bytes.ts';
import { records } from './lines.ts';
import { type BadRow, type LocatedRow, type Row, utf8 } from './row.ts';

export async function* readCsv(path: string, bad: BadRow): AsyncGenerator<LocatedRow> {
  const separator = /\.tsv(\.|$)/i.test(path) ? '\t' : ',';
  let header: string[] | undefined;
  for await (const { bytes, line } of records(fileBytes(path), path, separator)) {
    const text = utf8(bytes)?.replace(/\r$/, '');
    if (text === '') continue;
    const fields = text === undefined ? 'not UTF-8 text' : splitFields(text, separator);
    if (header === undefined) {
      if (typeof fields === 'string') throw new UserError(`${path}:${line}: the header is ${fields}.`);
      refuseTwice(fields, `${path}:${line}`);
      header = fields;
      continue;
    }
    if (typeof fields === 'string') bad(path, line, fields);
    else if (fields.length !== header.length) {
      bad(path, line, `${fields.length} fields where the header has ${header.length}`);
    } else {
      const row: Row = {};
      for (let i = 0; i < header.length; i++) row[header[i] as string] = fields[i];
      yield { row, file: path, line };
    }
  }
}

/**
 * Of two columns with one name, a row would keep only the last. Columns without a name, which spreadsheets leave
 * behind, are ignored.
 */
function refuseTwice(header: readonly string[], place: string): void {
  const twice = [...new Set(header.filter((name, i) => name.trim() !== '' && header.indexOf(name) !== i))];
  if (twice.length === 0) return;
  const places = twice.map((name) => {
    const columns = header.flatMap((each, i) => (each === name ? [i + 1] : []));
    return `"${name}" (columns ${columns.join(', ')})`;
  });
  throw new UserError(`${place}: the header has columns of the same name: ${places.join('; ')}. Rename them.`);
}

/** The fields of one record, or a message about what is wrong with it. */
function splitFields(text: string, separator: string): string[] | string {
  const fields: string[] = [];
  let at = 0;
  while (true) {
    if (text[at] === '"') {
      let field = '';
      let end = text.indexOf('"', at + 1);
      while (end >= 0 && text[end + 1] === '"') {
        field += text.slice(at + 1, end + 1);
        at = end + 1;
        end = text.indexOf('"', at + 1);
      }
      if (end < 0) return 'a quoted field is not closed';
      fields.push(field + text.slice(at + 1, end));
      at = end + 1;
      if (at < text.length && text[at] !== separator) return 'text follows a closing quote';
    } else {
      const end = text.indexOf(separator, at);
      fields.push(text.slice(at, end < 0 ? text.length : end));
      at = end < 0 ? text.length : end;
    }
    if (at >= text.length) return fields;
    at++;
  }
}
