/** Errors in OpenAI's format: `{ error: { message, type, param, code } }` with a status. */
import { AttuneError, UserError } from '../errors.ts';
import { HubUnreachable } from '../hub/request.ts';
import { QueueFullError } from '../models/index.ts';

export class ApiError extends AttuneError {
  override name = 'ApiError';
  readonly status: number;
  readonly param: string | null;
  readonly code: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(
    status: number,
    message: string,
    options: { param?: string; code?: string; headers?: Record<string, string> } = {},
  ) {
    super(message);
    this.status = status;
    this.param = options.param ?? null;
    this.code = options.code ?? null;
    this.headers = options.headers ?? {};
  }

  get body(): { error: { message: string; type: string; param: string | null; code: string | null } } {
    return { error: { message: this.message, type: typeOf(this.status), param: this.param, code: this.code } };
  }
}

function typeOf(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  return status < 500 ? 'invalid_request_error' : 'server_error';
}

/** How long a client should wait before it asks a full server again. */
const retryAfterSeconds = 2;

/** Turns any error into one for the client; internal details are not sent. */
export function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof QueueFullError)
    return new ApiError(429, error.message, {
      code: 'queue_full',
      headers: { 'Retry-After': String(retryAfterSeconds) },
    });
  // Nobody reads it, but it is logged.
  if (error instanceof DOMException && error.name === 'AbortError') return new ApiError(499, 'The client has gone.');
  if (error instanceof UserError) return new ApiError(400, error.message);
  // The page named a model: without the hub nobody can say whether it exists.
  if (error instanceof HubUnreachable) return new ApiError(502, error.message, { code: 'hub_unreachable' });
  return new ApiError(500, 'The server failed on this request; its log says why.', { code: 'internal_error' });
}
