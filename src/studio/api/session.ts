/** The session, and how a refused request is answered. */

/** Body of every refused request. */
export interface ApiFailure {
  error: {
    /** For people: what was wrong and what to do. */
    message: string;
    /** For programs: `host`, `origin`, `cookie`, `header`, `read_only`, `not_found`, `too_large`, `invalid`, … */
    code: string;
    /** The field of the request that is at fault. */
    field?: string;
    /** Every fault of a form, each at its field. */
    faults?: FieldFault[];
  };
}

/** GET /api/session */
export interface Session {
  version: string;
  /** The folder whose runs are shown, as a path for people. */
  root: string;
  readOnly: boolean;
  startedAt: number;
  /** Whether models can be loaded into the server for chat. */
  hasChat: boolean;
  /** Whether the train form, what-if and jobs are offered (not when the server is used as a library). */
  hasTrain: boolean;
  hasWhatIf: boolean;
  /** Device that chat uses: cpu, cuda:0. */
  device: string;
  /** Commands of this installation as typed: `npx attune`, `npm run attune --`. */
  attune: string;
  /** Models given on the command line (--model), to be offered first in Chat and Train. */
  models: string[];
}

export interface FieldFault {
  /** camelCase name of the field; empty for one that belongs to no field. */
  field: string;
  message: string;
}
