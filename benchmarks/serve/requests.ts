/** What the clients of the serve benchmark ask: the same requests over HTTP and in the sampler beside it. */

export interface Load {
  url: string;
  clients: number;
  /** Each client's requests, one after the other … */
  rounds: number;
  /** … or for so long. */
  seconds?: number;
  promptWords: number;
  maxTokens: number;
  /** Share of the streams that their client leaves in the middle. */
  leaving: number;
}

export interface LoadReading {
  seconds: number;
  requests: number;
  tokens: number;
  /** Streams that clients left. */
  left: number;
  /** Streams that ended without their end, though nobody left. */
  lost: number;
  /** What the first of them was told. */
  reason?: string;
  /** From sending a request to its first text, in milliseconds. */
  firstTextMs: number[];
}

/** One streamed request. */
export interface Question {
  url: string;
  messages: { role: string; content: string }[];
  maxTokens: number;
}

/** When it was sent and when its first text came, by the machine's clock in milliseconds, and what was written. */
export interface QuestionReading {
  sent: number;
  firstText: number;
  text: string;
}

const words = ['red', 'blue', 'four', 'spell', 'backward', 'sort', 'answer', 'seven'];

/** One request's message: no two begin alike, so that no prefix but the template's is shared. */
export function messageOf(client: number, round: number, length: number): string {
  const word = (i: number) => words[(client * 31 + round * 17 + i * i) % words.length];
  return `${client} ${round} ${Array.from({ length }, (_, i) => word(i)).join(' ')}`;
}

export const seedOf = (client: number, round: number): number => client * 1000 + round;
