/** Text: tokens, chats, thinking. */
export { type TrainBpeOptions, trainBpe } from './bpe-training.ts';
export { type ChatOptions, type Message, plainChatTemplate } from './chat.ts';
export { ChatFormat, type FormatOptions, type PromptFormat, type TextTokenizer } from './chat-format.ts';
export type { TextStream } from './stream.ts';
export { splitThinking, stripThinking } from './thinking.ts';
export { type ChatTokens, type DecodeOptions, type EncodeOptions, Tokenizer } from './tokenizer.ts';
