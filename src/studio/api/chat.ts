/** Chat with one model or two, votes and ratings of replies. */

export interface ChatMessage {
  role: 'system' | 'user' | 'assistant' | 'tool';
  content: string;
}

/** POST /api/chat/load → Job (kind `load`). An empty list of slots unloads. */
export interface ChatLoadRequest {
  /** One model, or two to be compared. */
  slots: string[];
  rewardModel?: string;
}
/** GET /api/chat/state */
export interface ChatState {
  slots: ChatSlot[];
  rewardModel?: string;
  /** A load that is under way. */
  loading?: { jobId: string };
  /** The file that votes go to, as a path that `--dataset` takes. */
  votesFile: string;
}
export interface ChatSlot {
  model: string;
  name: string;
  maxTokens: number;
  /** Whether its template knows `enable_thinking`. */
  thinking: boolean;
}

/** POST /api/chat/send: answered with server-sent events (read it with fetch). */
export interface ChatSendRequest {
  /** Chosen by the page; stop and vote refer to it. */
  turn: string;
  messages: ChatMessage[];
  sampling?: ChatSampling;
  /** Two models in random order, without names until the vote. */
  blind?: boolean;
  /** Only this slot (regenerate one side). */
  slot?: number;
}
export interface ChatSampling {
  temperature?: number;
  topP?: number;
  topK?: number;
  minP?: number;
  maxTokens?: number;
  seed?: number;
  thinking?: boolean;
}
/** Events of /api/chat/send. `side` is 0 or 1: the column, which is the slot unless blind. */
export interface ChatEvents {
  begin: { side: number; name?: string };
  token: { side: number; text: string; thinking: boolean };
  end: {
    side: number;
    text: string;
    tokens: number;
    tokensPerSecond: number;
    /** stop: it ended by itself. length: it reached the limit. stopped: by the user. */
    finish: 'stop' | 'length' | 'stopped';
    /** The reward model's, where one is loaded; of a blind turn only after the vote. */
    score?: number;
  };
  failure: { side: number; message: string };
  done: Record<string, never>;
}
/** POST /api/chat/stop */
export interface ChatStopRequest {
  turn: string;
}
/** POST /api/chat/vote: on the two replies of a turn. */
export interface ChatVoteRequest {
  turn: string;
  choice: 1 | 2 | '=' | 'skip';
}
export interface ChatVoteAnswer {
  /** Names of the models in the order in which they were shown. */
  models: [string, string];
  scores?: [number, number];
  votes: VotesAnswer;
}
/** GET /api/chat/votes: of the two loaded models. */
export interface VotesAnswer {
  path: string;
  /** Rows in the file, of all models. */
  total: number;
  models?: [string, string];
  wins?: [number, number];
  ties?: number;
  /** The first model's share of decided votes with its 95 % interval. */
  share?: { value: number; low: number; high: number };
}
/** POST /api/chat/rate: a thumb on a single reply, kept as a KTO row (prompt, completion, label). */
export interface ChatRateRequest {
  turn: string;
  side: number;
  good: boolean;
}
export interface ChatRateAnswer {
  path: string;
  total: number;
}
