/** Tokenizers, chat templates and the thinking part of responses. */

export { type ChatOptions, type Message, plainChatTemplate } from './chat/chat.ts';
export { splitThinking, stripThinking } from './chat/thinking.ts';
export { type Part as ThinkingPart, ThinkingParts } from './chat/thinking-parts.ts';
export { ChatFormat, type FormatOptions, type PromptFormat, type TextTokenizer } from './chat-format.ts';
export { Constraint, vocabularyOf } from './grammar/constraint.ts';
export { choice, type GrammarNode, literal, optional, repeat, sequence } from './grammar/grammar.ts';
export { type JsonSchema, objectGrammar, schemaGrammar } from './grammar/json-schema.ts';
export { isFarLonger } from './long-text.ts';
export { NextTurn } from './next-turn.ts';
export { type TrainBpeOptions, trainBpe } from './tokenizer/bpe-training.ts';
export type { TextStream } from './tokenizer/stream.ts';
export { type ChatTokens, type DecodeOptions, type EncodeOptions, Tokenizer } from './tokenizer/tokenizer.ts';
