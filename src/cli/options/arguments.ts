/**
 * Options may be written `--kebab-case` or `--snake_case`: both become `--kebab-case` before they are parsed.
 *
 *     normalizeArguments(['train', '--grad_accum', '4'])   // ['train', '--grad-accum', '4']
 */
export function normalizeArguments(argv: readonly string[]): string[] {
  // After a lone "--" everything belongs to another program (attune launch -- …).
  const end = argv.indexOf('--');
  return argv.map((arg, index) => (end !== -1 && index >= end ? arg : normalizeOption(arg)));
}

function normalizeOption(arg: string): string {
  const option = /^--[A-Za-z][\w-]*/.exec(arg)?.[0];
  if (option === undefined) return arg;
  const rest = arg.slice(option.length);
  // Only a whole option, or one with "=value": anything else that begins with dashes is a value.
  return rest === '' || rest.startsWith('=') ? option.replaceAll('_', '-') + rest : arg;
}
