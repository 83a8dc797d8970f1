/**
 * The tokens between two turns of a policy: the end of its turn, the messages it receives, and the header of its next
 * turn. Its own text is never tokenised again; these tokens are appended to it.
 *
 *     const next = new NextTurn(tokenizer, new ChatFormat(tokenizer));
 *     next.ids(prompt, [{ role: 'user', content: 'Higher.' }], lastId);      // <|im_end|> left out if the policy wrote it:
 * <|im_start|>user
 * Higher.…
 *
 * They are what the chat template writes after a past response. A template that rewrites earlier responses (Qwen3 drops
 * their thinking) would change the policy's text; here it stays unchanged.
 */
import { UserError } from '../errors.ts';
import type { Message } from './chat/chat.ts';
import type { ChatFormat } from './chat-format.ts';
import type { Tokenizer } from './tokenizer/tokenizer.ts';

/** Stands for the policy's text. It occurs in no chat, and no template trims it or takes it for thinking. */
const RESPONSE = 'attune\u2063past\u2063response';
/** Stands for a message that the policy receives, if only the text around it matters. */
const TOLD = 'attune\u2063told';
/** Surrounds a text in which names of control tokens are plain text. A noncharacter, which no text contains. */
const EDGE = '\ufdd0';

type NextTokenizer = Pick<Tokenizer, 'encode' | 'token' | 'isSpecial'>;

/** Encodes what comes between two turns of a policy. */
export class NextTurn {
  readonly #tokenizer: NextTokenizer;
  readonly #format: ChatFormat;
  /** The text before the first message, by the messages' roles. */
  readonly #heads = new Map<string, string>();

  constructor(tokenizer: NextTokenizer, format: ChatFormat) {
    this.#tokenizer = tokenizer;
    this.#format = format;
  }

  /**
   * The ids after a response that ended with the token `last`. `before`: the messages that the conversation began with.
   * Throws a UserError if the chat template cannot continue after a response.
   */
  ids(before: readonly Message[], told: readonly Message[], last: number): number[] {
    const head = this.#headOf(before, told);
    const end = this.#tokenizer.token(last) ?? '';
    const at = end === '' ? -1 : head.indexOf(end);
    // The policy wrote the end of its turn itself. It is encoded again, because what follows is encoded after it, and
    // then removed.
    const isNamed = ({ content }: Message) =>
      this.#tokenizer.encode(content).some((id) => this.#tokenizer.isSpecial(id));
    const hasNames = told.some(isNamed);
    const behind = this.#behind(before, hasNames ? told.map(edged) : told);
    const encoded = (text: string) => (hasNames ? this.#pieces(text) : this.#tokenizer.encode(text));
    const ids = encoded(at < 0 ? end + behind : behind.slice(at));
    return ids[0] === last ? ids.slice(1) : encoded(behind);
  }

  /** The text that the template writes between the response and the first message. */
  #headOf(before: readonly Message[], told: readonly Message[]): string {
    const roles = told.map(({ role }) => role).join();
    const known = this.#heads.get(roles);
    if (known !== undefined) return known;
    const probe = told.map(({ role }) => ({ role, content: TOLD }));
    const parts = this.#behind(before, probe).split(TOLD);
    if (parts.length !== told.length + 1)
      throw new UserError(
        `The chat template does not write messages of the role ${[...new Set(roles.split(','))].join(' and ')} behind a response, so the policy would not read what it is told. Give observations another role, or take another template (--prompt-format transcript).`,
      );
    const [head = ''] = parts;
    this.#heads.set(roles, head);
    return head;
  }

  /** The text that the template writes after a response. */
  #behind(before: readonly Message[], told: readonly Message[]): string {
    const past: Message = { role: 'assistant', content: RESPONSE };
    const parts = this.#format.prompt([...before.map(unmarked), past, ...told.map(unmarked)]).split(RESPONSE);
    if (parts.length === 2) return parts[1] as string;
    const how = parts.length < 2 ? 'leaves earlier responses out' : 'writes a response more than once';
    throw new UserError(
      `The chat template ${how}, so a conversation cannot go on behind one. Take another template, or --prompt-format transcript.`,
    );
  }

  /** The ids of a text with marked contents, in which names of control tokens are plain text. */
  #pieces(text: string): number[] {
    return text.split(EDGE).flatMap((piece, i) => {
      if (i % 2 === 0) return this.#tokenizer.encode(piece);
      const ids = this.#tokenizer.encode(piece, { plain: true });
      const control = ids.find((id) => this.#tokenizer.isSpecial(id));
      if (control === undefined) return ids;
      throw new UserError(
        `An observation has the name of the control token ${this.#tokenizer.token(control)}, and this tokenizer cannot write it as text: take it out of what the environment says.`,
      );
    });
  }
}

/** A message's other fields stay: a template may write the name of a tool, or need the calls that it answers. */
const unmarked = (message: Message): Message => ({ ...message, content: message.content.replaceAll(RESPONSE, '') });

const edged = ({ content, ...rest }: Message): Message => ({
  ...rest,
  content: `${EDGE}${content.replaceAll(EDGE, '')}${EDGE}`,
});
