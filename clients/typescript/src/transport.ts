// Sends requests: a time-out for each attempt, and further attempts where a repetition is safe.

import { ConnectionFailedError, TimedOutError } from "./errors.js";

export type Fetch = (request: Request) => Promise<Response>;

/** What every call takes. */
export interface CallOptions {
  /** Ends the call, which then throws the signal's reason. */
  signal?: AbortSignal | undefined;
  /** Of each attempt, in milliseconds. */
  timeoutMs?: number | undefined;
}

export interface RetryOptions {
  /** Of one call; 1 never retries. */
  attempts: number;
  /** Of all pauses between the attempts of one call together, in milliseconds. */
  waitMs: number;
}

/** Statuses of an API that is busy, or of a proxy that does not reach it. */
export const TRANSIENT: ReadonlySet<number> = new Set([429, 502, 503, 504]);
const FIRST_PAUSE_MS = 200;

/** Send a request, again if it may be repeated and was not served; return the last response. */
export async function send(
  request: Request,
  fetch: Fetch,
  isRepeatable: boolean,
  retry: RetryOptions,
  { signal, timeoutMs = 30_000 }: CallOptions,
): Promise<Response> {
  let waitedMs = 0;
  for (let attempt = 1; ; attempt++) {
    let response: Response | null = null;
    let failure: unknown = null;
    try {
      response = await attemptOnce(request.clone(), fetch, timeoutMs, signal);
      if (!TRANSIENT.has(response.status)) return response;
    } catch (error) {
      // A call that has timed out is not repeated: it would take several times its time-out.
      if (!(error instanceof ConnectionFailedError) || error instanceof TimedOutError) throw error;
      failure = error;
    }
    const pause = pauseMs(attempt, FIRST_PAUSE_MS, response);
    if (!isRepeatable || attempt >= retry.attempts || waitedMs + pause > retry.waitMs) {
      if (response === null) throw failure;
      return response;
    }
    await sleep(pause, signal);
    waitedMs += pause;
  }
}

/** Return a whole response: if it is cut, that is a failed attempt too. */
async function attemptOnce(
  request: Request,
  fetch: Fetch,
  timeoutMs: number,
  signal: AbortSignal | undefined,
): Promise<Response> {
  const timer = AbortSignal.timeout(timeoutMs);
  try {
    const limits = { signal: signal ? AbortSignal.any([signal, timer]) : timer };
    const response = await fetch(new Request(request, limits));
    const body = await response.arrayBuffer();
    const { status, headers } = response;
    return new Response(body.byteLength ? body : null, { status, headers });
  } catch (error) {
    signal?.throwIfAborted();
    const what = `${request.method} ${request.url}`;
    if (timer.aborted) throw new TimedOutError(`${what}: no response within ${timeoutMs} ms`, { cause: error });
    throw new ConnectionFailedError(`${what}: no response`, { cause: error });
  }
}

/** Return the pause before the next attempt: that of Retry-After, and a random addition so that clients spread. */
export function pauseMs(attempt: number, firstMs: number, response: Response | null): number {
  const growing = Math.max(firstMs, Math.min(firstMs * 2 ** (attempt - 1), 8000));
  return (retryAfterMs(response) ?? growing) * (1 + Math.random() / 4);
}

function retryAfterMs(response: Response | null): number | null {
  const given = response?.headers.get("retry-after");
  if (!given) return null;
  const ms = /^\d+$/.test(given) ? Number(given) * 1000 : Date.parse(given) - Date.now();
  return Number.isNaN(ms) ? null : Math.max(ms, 0);
}

/** Wait, or throw the signal's reason. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const end = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", end);
      resolve();
    }, ms);
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}
