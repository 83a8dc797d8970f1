/**
 * Arithmetic expressions as trees: parsed by a small parser (a response is never run as code), evaluated exactly as
 * fractions, and written with parentheses only where precedence needs them.
 *
 *     exactValue(parseExpression('(3+5)*2'))        // { top: 16, bottom: 1 }
 *     writeExpression(tree, ' ')                  // '(3 + 5) * 2'
 */
export type Operator = '+' | '-' | '*' | '/';
export type Expression = number | { op: Operator; left: Expression; right: Expression };

export interface Fraction {
  top: number;
  bottom: number;
}

const precedence: Record<Operator, number> = { '+': 1, '-': 1, '*': 2, '/': 2 };
/** No answer to a task here is longer, and deep nesting must not exhaust the stack. */
const longestText = 400;

/** The tree of a text with whole numbers, + - * / (also × and ÷) and parentheses; undefined where it is not one. */
export function parseExpression(text: string): Expression | undefined {
  if (text.length > longestText) return undefined;
  const plain = text.replaceAll('×', '*').replaceAll('÷', '/').replaceAll('\u2212', '-');
  const tokens = plain.match(/\d+|[-+*/()]|\S/g) ?? [];
  let at = 0;

  const sum = (lowest: number): Expression | undefined => {
    let left = operand();
    for (;;) {
      const op = tokens[at];
      if (left === undefined || !isOperator(op) || precedence[op] < lowest) return left;
      at++;
      const right = sum(precedence[op] + 1);
      if (right === undefined) return undefined;
      left = { op, left, right };
    }
  };
  const operand = (): Expression | undefined => {
    const token = tokens[at++];
    if (token === undefined) return undefined;
    if (/^\d+$/.test(token)) return Number(token);
    if (token !== '(') return undefined;
    const inner = sum(1);
    return tokens[at++] === ')' ? inner : undefined;
  };

  const tree = sum(1);
  return at === tokens.length ? tree : undefined;
}

/** The exact value, or undefined on division by zero or beyond safe integers. */
export function exactValue(tree: Expression): Fraction | undefined {
  if (typeof tree === 'number') return reduced(tree, 1);
  const a = exactValue(tree.left);
  const b = exactValue(tree.right);
  if (a === undefined || b === undefined) return undefined;
  switch (tree.op) {
    case '+':
      return reduced(a.top * b.bottom + b.top * a.bottom, a.bottom * b.bottom);
    case '-':
      return reduced(a.top * b.bottom - b.top * a.bottom, a.bottom * b.bottom);
    case '*':
      return reduced(a.top * b.top, a.bottom * b.bottom);
    case '/':
      return reduced(a.top * b.bottom, a.bottom * b.top);
  }
}

/** All numbers in the tree, from left to right. */
export function leavesOf(tree: Expression): number[] {
  return typeof tree === 'number' ? [tree] : [...leavesOf(tree.left), ...leavesOf(tree.right)];
}

/** Written out; `gap` goes round the operators. */
export function writeExpression(tree: Expression, gap = ''): string {
  if (typeof tree === 'number') return String(tree);
  const mine = precedence[tree.op];
  const side = (child: Expression, isRight: boolean) => {
    const text = writeExpression(child, gap);
    if (typeof child === 'number') return text;
    const theirs = precedence[child.op];
    return theirs < mine || (isRight && theirs === mine) ? `(${text})` : text;
  };
  return `${side(tree.left, false)}${gap}${tree.op}${gap}${side(tree.right, true)}`;
}

export function gcd(a: number, b: number): number {
  let [x, y] = [Math.abs(a), Math.abs(b)];
  while (y !== 0) [x, y] = [y, x % y];
  return x;
}

function reduced(top: number, bottom: number): Fraction | undefined {
  if (bottom === 0 || !Number.isSafeInteger(top) || !Number.isSafeInteger(bottom)) return undefined;
  const shared = gcd(top, bottom) * Math.sign(bottom);
  return { top: top / shared || 0, bottom: bottom / shared };
}

function isOperator(token: string | undefined): token is Operator {
  return token === '+' || token === '-' || token === '*' || token === '/';
}
