/**
 * Chat templates: the Jinja program of a model that turns messages into the text it was trained on.
 *
 *     const chat = new ChatTemplate(template, { bos_token: '<s>', eos_token: '</s>' });
 *     chat.render([{ role: 'user', content: 'Hi' }], { addGenerationPrompt: true });
 */
import { UserError } from '../../errors.ts';
import { BoundedTemplate } from './bounded-template.ts';

/** One message of a conversation. */
export interface Message {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
}

/** How a chat is rendered: generation prompt, tools, template variables. */
export interface ChatOptions {
  /** End with the header of an assistant's turn, so that the model continues with its response. */
  addGenerationPrompt?: boolean;
  /** JSON schemas of functions, for templates that support tools. */
  tools?: unknown[];
  /** Further variables that a template reads, such as `enable_thinking`. */
  variables?: Record<string, unknown>;
}

/** ChatML, for models without a template of their own. It is used only on request. */
export const plainChatTemplate =
  "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}" +
  "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

export class ChatTemplate {
  readonly source: string;
  readonly #template: BoundedTemplate;
  readonly #constants: Record<string, unknown>;

  constructor(source: string, constants: Record<string, unknown>) {
    this.source = source;
    this.#constants = constants;
    try {
      this.#template = new BoundedTemplate(source);
    } catch (error) {
      throw new UserError(`The chat template cannot be parsed: ${(error as Error).message}`);
    }
  }

  render(messages: readonly Message[], options: ChatOptions = {}): string {
    checkMessages(messages);
    try {
      return this.#template.render({
        ...this.#constants,
        messages,
        add_generation_prompt: options.addGenerationPrompt ?? false,
        tools: options.tools ?? null,
        documents: null,
        ...options.variables,
      });
    } catch (error) {
      throw new UserError(`The chat template refused these messages: ${(error as Error).message}`);
    }
  }
}

function checkMessages(messages: readonly Message[]): void {
  if (!Array.isArray(messages)) throw new UserError('messages: expected a list, each with a role and content.');
  messages.forEach((message, i) => {
    if (typeof message?.role !== 'string') throw new UserError(`messages[${i}] has no role.`);
    if (typeof message.content !== 'string' && !('tool_calls' in message)) {
      throw new UserError(`messages[${i}] (${message.role}) has no text content.`);
    }
  });
}
