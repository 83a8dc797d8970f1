/**
 * LaTeX as one line of text for a terminal: `\frac{a}{b}` becomes `a/b`, `\pi_\theta` becomes `π_θ`. It knows the commands that
 * the chapters use; a test reads all chapters and fails on one that it does not know.
 */

const symbols: Record<string, string> = {
  alpha: 'α',
  beta: 'β',
  gamma: 'γ',
  delta: 'δ',
  epsilon: 'ε',
  varepsilon: 'ε',
  lambda: 'λ',
  mu: 'μ',
  pi: 'π',
  theta: 'θ',
  phi: 'φ',
  psi: 'ψ',
  rho: 'ρ',
  sigma: 'σ',
  tau: 'τ',
  eta: 'η',
  Delta: 'Δ',
  ell: 'ℓ',
  nabla: '∇',
  sum: 'Σ',
  prod: 'Π',
  int: '∫',
  infty: '∞',
  partial: '∂',
  mathbb: '',
  cdot: '·',
  times: '×',
  pm: '±',
  approx: '≈',
  le: '≤',
  leq: '≤',
  ge: '≥',
  geq: '≥',
  ne: '≠',
  neq: '≠',
  in: '∈',
  to: '→',
  rightarrow: '→',
  mid: '|',
  vert: '|',
  propto: '∝',
  sim: '∼',
  succ: '≻',
  log: 'log',
  ln: 'ln',
  exp: 'exp',
  min: 'min',
  max: 'max',
  quad: '\u2003',
  qquad: '\u2003',
  ldots: '…',
  dots: '…',
  cdots: '⋯',
  Vert: '‖',
  lVert: '‖',
  rVert: '‖',
  lvert: '|',
  rvert: '|',
  big: '',
  Big: '',
  bigl: '',
  bigr: '',
  Bigl: '',
  Bigr: '',
  left: '',
  right: '',
  displaystyle: '',
  sqrt: '√',
  binom: '',
  lfloor: '⌊',
  rfloor: '⌋',
  odot: '⊙',
  top: 'ᵀ',
  star: '*',
  equiv: '≡',
  Rightarrow: '⇒',
  iff: '⇔',
  forall: '∀',
};
/** Commands whose argument is kept as it is. */
const plain = new Set(['text', 'operatorname', 'mathrm', 'mathbf', 'mathcal', 'mathbb', 'boldsymbol', 'overline']);
const accents: Record<string, string> = { hat: '\u0302', bar: '\u0304', tilde: '\u0303' };

/** A formula in plain characters. */
export function latexText(latex: string): string {
  return (
    read(latex.replaceAll('\n', ' '))
      .replaceAll(/[ \t\r]+/g, ' ')
      .replaceAll(/ ([,)\]])/g, '$1')
      .replaceAll(/([([]) /g, '$1')
      // Two formulas on a line stay apart.
      .replaceAll(/ ?\u2003 ?/g, '    ')
      .trim()
  );
}

/** Commands in a formula that `latexText` does not know. */
export function unknownCommands(latex: string): string[] {
  const names = [...latex.matchAll(/\\([A-Za-z]+)/g)].map((match) => match[1] as string);
  const known = (name: string) =>
    name in symbols || plain.has(name) || name in accents || ['frac', 'tfrac', 'begin', 'end'].includes(name);
  return names.filter((name) => !known(name));
}

function read(latex: string): string {
  let out = '';
  for (let at = 0; at < latex.length; ) {
    const char = latex[at] as string;
    if (char === '\\') {
      const name = /^\\([A-Za-z]+|.)/.exec(latex.slice(at))?.[1] ?? '';
      at += 1 + name.length;
      const next = () => {
        const [inner, end] = argument(latex, at);
        at = end;
        return read(inner);
      };
      if (name === 'frac' || name === 'tfrac') out += `${grouped(next())}/${grouped(next())}`;
      else if (name === 'binom') out += `C(${next()}, ${next()})`;
      else if (name === 'begin' || name === 'end') next();
      else if (name in accents) out += `${next()}${accents[name]}`;
      else if (name === 'sqrt') out += `√${grouped(next())}`;
      else if (plain.has(name)) out += next();
      else if (name === '\\') out += ';  ';
      else if (/^[,;:! ]$/.test(name)) out += ' ';
      else out += symbols[name] ?? name;
    } else if (char === '{' || char === '}' || char === '&') at++;
    else if ((char === '_' || char === '^') && latex[at + 1] === '{') {
      const [inner, end] = argument(latex, at + 1);
      at = end;
      const text = read(inner);
      out += `${char}${text.length === 1 ? text : `{${text}}`}`;
    } else {
      out += char;
      at++;
    }
  }
  return out;
}

/** The braced argument, or the one symbol, that begins at a place; and where it ends. */
function argument(latex: string, from: number): [string, number] {
  let at = from;
  while (latex[at] === ' ') at++;
  if (latex[at] === '\\') {
    const command = /^\\([A-Za-z]+|.)/.exec(latex.slice(at))?.[0] ?? '\\';
    return [command, at + command.length];
  }
  if (latex[at] !== '{') return [latex[at] ?? '', at + 1];
  let depth = 0;
  for (let end = at; end < latex.length; end++) {
    if (latex[end] === '{') depth++;
    if (latex[end] === '}' && --depth === 0) return [latex.slice(at + 1, end), end + 1];
  }
  return [latex.slice(at + 1), latex.length];
}

const grouped = (text: string): string => (/[\s+−\-·/]/.test(text.trim()) ? `(${text.trim()})` : text.trim());
