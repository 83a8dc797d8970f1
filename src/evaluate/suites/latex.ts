/**
 * Boxed answers in LaTeX, and a normal form in which equal answers are mostly the same string. Nothing is evaluated:
 * 0.5 and \frac{1}{2} are equal, 2^{10} and 1024 are not.
 *
 *     lastBoxed('so $\\boxed{\\frac{1}{2}}$');      // '\\frac{1}{2}'
 *     latexForm('$\\dfrac12$');                     // '1/2'
 */

/** The content of the last `\boxed{…}` or `\fbox{…}` with matching braces; undefined if none is closed. */
export function lastBoxed(text: string): string | undefined {
  const at = Math.max(text.lastIndexOf('\\boxed'), text.lastIndexOf('\\fbox'));
  if (at < 0) return undefined;
  const open = text.indexOf('{', at);
  // "\boxed 7": until the end of the formula
  if (open < 0 || text.slice(at, open).trim().includes(' '))
    return /^\\(?:boxed|fbox)\s+([^$\s]+)/.exec(text.slice(at))?.[1];
  return braced(text, open);
}

function braced(text: string, open: number): string | undefined {
  let depth = 0;
  for (let i = open; i < text.length; i++) {
    if (text[i] === '{') depth++;
    if (text[i] === '}' && --depth === 0) return text.slice(open + 1, i);
  }
  return undefined;
}

/** The last formula between dollars or in \( \), otherwise the last number; undefined without either. */
export function lastFormula(text: string): string | undefined {
  const formula = [...text.matchAll(/\$\$?([^$]+)\$|\\\((.+?)\\\)/gs)].at(-1);
  return formula?.[1] ?? formula?.[2] ?? text.match(/-?\d[\d,]*(?:\.\d+)?(?:\/\d+)?/g)?.at(-1);
}

const units =
  /\\?(?:text|mbox|mathrm)\{\s*(?:square\s+)?(?:units?|cm|m|km|inch(?:es)?|ft|feet|miles?|mph|degrees?|dollars|cents|hours?|minutes?|seconds?|years?|days?|points?|pounds?|liters?|gallons?|students?|people|ways|sides|edges|men)\s*\}(?:\^\{?\d\}?)?/gi;

/** The form in which answers are compared. */
export function latexForm(answer: string): string {
  let form = answer.trim().replace(/\s*(?<!\\)\.$/, '');
  form = form.replace(/^\$+|\$+$/g, '').replace(/\\[()[\]]/g, '');
  form = form
    .replace(/\\(?:left|right|displaystyle|big|Big|,|;|!|:|\s|quad)(?![a-z])/g, '')
    .replace(/\\[dtc]frac/g, '\\frac');
  form = form.replace(units, '');
  form = form.replace(/\\(?:text|mbox|mathrm|textbf|mathbf)\{([^{}]*)\}/g, '$1');
  form = form.replace(/\^\{?\\circ\}?|\\degree/g, '').replace(/\\?[%$]/g, '');
  // "x = 5" becomes 5, but an equation between expressions stays.
  form = form.replace(/^\s*[a-zA-Z]\w?\s*(?:=|\\in)\s*/, '');
  form = form
    .replace(/\s+/g, '')
    .replace(/(?<=\d),(?=\d{3}(?!\d))/g, '')
    .replace(/\{,\}/g, '');
  form = form
    .replace(/\\sqrt(\d)/g, '\\sqrt{$1}')
    .replace(/\\frac(\d)(\d)/g, '\\frac{$1}{$2}')
    .replace(/\\frac(\d)\{/g, '\\frac{$1}{');
  form = form.replace(/^(-?)\\frac\{(-?\w+)\}\{(\w+)\}$/, '$1$2/$3');
  return simpleNumber(form);
}

/** 0.50, .5 and 1/2 are the same number, as are forms with a plus sign or leading zeros. */
function simpleNumber(form: string): string {
  if (/^[-+]?(\d+\.?\d*|\.\d+)$/.test(form)) return String(Number(form));
  const [, top, bottom] = /^([-+]?\d+)\/(\d+)$/.exec(form) ?? [];
  if (top === undefined || Number(bottom) === 0)
    return form.toLowerCase() === form ? form : form.replace(/^[A-Za-z]+$/, (word) => word.toLowerCase());
  return String(Number(top) / Number(bottom));
}
