/**
 * A Jinja template with limits. A template comes with a model and may be malicious: it could loop for hours or fill the
 * memory. The interpreter's steps are counted and the size of its values is checked.
 */
import { Environment, Interpreter, parse, Template, tokenize } from '@huggingface/jinja';

export interface TemplateLimits {
  steps: number;
  seconds: number;
  /** Characters of a text, or elements of a list. */
  size: number;
}

// A chat of a thousand turns takes some 200,000 steps.
const defaults: TemplateLimits = { steps: 20_000_000, seconds: 20, size: 2 ** 26 };
const STEPS_BETWEEN_LOOKS = 256;

interface Value {
  value?: unknown;
}

/** The package's own types do not resolve under Node's module rules. */
const JinjaInterpreter = Interpreter as unknown as new (
  environment: object,
) => { run(program: object): Value; evaluate(node: object, environment: object): Value };

export class BoundedTemplate {
  readonly #program: object;
  readonly #limits: TemplateLimits;

  constructor(source: string, limits: Partial<TemplateLimits> = {}) {
    // As in jinja2, every line end becomes \n. The package drops the last one, as jinja2 does.
    const text = source.replace(/\r\n?/g, '\n');
    this.#program = parse(tokenize(text, { lstrip_blocks: true, trim_blocks: true }));
    this.#limits = { ...defaults, ...limits };
  }

  render(variables: Record<string, unknown>): string {
    const environment = new Environment();
    for (const [name, value] of Object.entries({ ...globals(this.#limits.size), ...variables })) {
      environment.set(name, value);
    }
    return String(new BoundedInterpreter(environment, this.#limits).run(this.#program).value);
  }
}

class BoundedInterpreter extends JinjaInterpreter {
  readonly #limits: TemplateLimits;
  readonly #start = performance.now();
  #steps = 0;

  constructor(environment: object, limits: TemplateLimits) {
    super(environment);
    this.#limits = limits;
  }

  override evaluate(node: object, environment: object): Value {
    const { steps, seconds, size } = this.#limits;
    if (++this.#steps > steps) throw new Error(`it takes more than ${steps} steps`);
    if (this.#steps % STEPS_BETWEEN_LOOKS === 0 && performance.now() - this.#start > seconds * 1000) {
      throw new Error(`it takes longer than ${seconds} s`);
    }
    const result = super.evaluate(node, environment);
    const { value } = result;
    if ((typeof value === 'string' || Array.isArray(value)) && value.length > size) throw tooLarge(size);
    return result;
  }
}

/** Globals that chat templates use; constants are also accepted with a capital. */
function globals(size: number): Record<string, unknown> {
  const constants = { true: true, True: true, false: false, False: false, none: null, None: null };
  return {
    ...constants,
    raise_exception(message: string) {
      throw new Error(message);
    },
    range(first: number, second?: number, step = 1): number[] {
      const [start, end] = second === undefined ? [0, first] : [first, second];
      const length = Math.max(0, Math.ceil((end - start) / step));
      if (!(length <= size)) throw step === 0 ? new Error('range() step must not be zero') : tooLarge(size);
      return Array.from({ length }, (_, i) => start + i * step);
    },
    // The package does not export this function; a small template gives access to it.
    strftime_now: (format: string) => new Template('{{ strftime_now(format) }}').render({ format }),
  };
}

function tooLarge(size: number): Error {
  return new Error(`it makes something larger than ${size} characters or elements`);
}
