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
/** What a timer can count. */
const LONGEST_MS = 2 ** 31 - 1;

/** Return a number of a caller's; a RangeError says which one is none, such as NaN: it would wait for ever, or never. */
export function checked(name: string, value: number, { min = 0 }: { min?: number } = {}): number {
  if (!(value >= min)) throw new RangeError(`${name} must be a number from ${min}, not ${value}`);
  return value;
}

/** Send a request, again if it may be repeated and was not served; return the last response. */
export async function send(
  request: Request,
  fetch: Fetch,
  isRepeatable: boolean,
  retry: RetryOptions,
  { signal, timeoutMs = 30_000 }: CallOptions,
): Promise<Response> {
  checked("timeoutMs", timeoutMs);
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
  const what = `${request.method} ${request.url}: no response`;
  try {
    return await inTime(what, { signal, timeoutMs }, async (limit) => {
      const response = await fetch(limit.on(request));
      const pieces = await wholeBody(response, limit);
      const { status, headers } = response;
      return new Response(pieces.length > 0 ? new Blob(pieces) : null, { status, headers });
    });
  } catch (error) {
    if (signal?.aborted || error instanceof TimedOutError) throw error;
    throw new ConnectionFailedError(what, { cause: error });
  }
}

/** Read a body to its end. It is cancelled with the limit, of which Node's fetch may know nothing any more. */
async function wholeBody(response: Response, limit: Limit): Promise<Uint8Array<ArrayBuffer>[]> {
  const reader = response.body?.getReader();
  const cancel = (): void => void reader?.cancel().catch(() => undefined);
  limit.signal.addEventListener("abort", cancel, { once: true });
  const pieces: Uint8Array<ArrayBuffer>[] = [];
  for (;;) {
    const piece = await reader?.read();
    if (!piece || piece.done) return pieces;
    pieces.push(piece.value);
  }
}

/** Return what the work returns; else throw a TimedOutError that begins with `what`, or the signal's reason. */
export async function inTime<T>(
  what: string,
  { signal, timeoutMs }: { signal: AbortSignal | undefined; timeoutMs: number },
  work: (limit: Limit) => Promise<T>,
): Promise<T> {
  const limit = new Limit(signal);
  limit.restart(checked("timeoutMs", timeoutMs));
  try {
    return await limit.within(() => work(limit));
  } catch (error) {
    signal?.throwIfAborted();
    if (limit.isOver) throw new TimedOutError(`${what} within ${timeoutMs} ms`, { cause: error });
    throw error;
  } finally {
    limit.close();
  }
}

/**
 * What ends a request: a time, or the caller's signal.
 *
 * Node collects the signals of AbortSignal.timeout and AbortSignal.any, and a Request, while a request still waits for
 * them, which then never ends. So the limit holds all that it needs until it is closed, and ends a wait by itself.
 */
export class Limit {
  readonly #controller = new AbortController();
  readonly #given: AbortSignal | undefined;
  readonly #requests: Request[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(given: AbortSignal | undefined) {
    this.#given = given;
    if (given?.aborted) this.end();
    else given?.addEventListener("abort", this.end, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** Whether the time was over, or the caller's signal aborted. */
  get isOver(): boolean {
    return this.signal.aborted;
  }

  /** Start the timer again. */
  restart(ms: number): void {
    this.pause();
    this.#timer = setTimeout(this.end, Math.min(ms, LONGEST_MS));
  }

  /** Stop the timer until it is started again. */
  pause(): void {
    clearTimeout(this.#timer);
  }

  /** Return a request that ends with the limit. */
  on(request: Request | string, how: RequestInit = {}): Request {
    const limited = new Request(request, { ...how, signal: this.signal });
    this.#requests.push(limited);
    return limited;
  }

  /** Return what the work returns, or throw as soon as the limit is over: before the work if it is already. */
  async within<T>(work: () => Promise<T>): Promise<T> {
    this.signal.throwIfAborted();
    let end!: () => void;
    const over = new Promise<never>((_, reject) => {
      end = () => reject(this.signal.reason);
      this.signal.addEventListener("abort", end, { once: true });
    });
    try {
      return await Promise.race([work(), over]);
    } finally {
      this.signal.removeEventListener("abort", end);
    }
  }

  /** Forget the time and the caller's signal. Idempotent. */
  close(): void {
    this.pause();
    this.#given?.removeEventListener("abort", this.end);
    this.#requests.length = 0;
  }

  /** End what runs within it. Idempotent. */
  readonly end = (): void => {
    this.#controller.abort(this.#given?.reason);
  };
}

/**
 * Return the pause before the next attempt: a growing one, at least that of Retry-After, and a random addition so that
 * clients spread. A Retry-After of nothing, or before now, asks for no attempts without a pause.
 */
export function pauseMs(attempt: number, firstMs: number, response: Response | null): number {
  const growing = Math.max(firstMs, Math.min(firstMs * 2 ** (attempt - 1), 8000));
  return Math.max(retryAfterMs(response), growing) * (1 + Math.random() / 4);
}

function retryAfterMs(response: Response | null): number {
  const given = response?.headers.get("retry-after") ?? "";
  if (/^\d+$/.test(given)) return Number(given) * 1000;
  // The clock that made the time, as far as it is known, and not this machine's.
  const now = Date.parse(response?.headers.get("date") ?? "");
  return Date.parse(given) - (Number.isNaN(now) ? Date.now() : now) || 0;
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
    }, Math.min(ms, LONGEST_MS));
    if (signal?.aborted) end();
    else signal?.addEventListener("abort", end, { once: true });
  });
}
