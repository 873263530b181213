// Calls the HTTP API. The key is kept only here, in memory.

import type { components } from "../../../clients/typescript/src/schema";
import { type Connect, RunStream } from "../../../clients/typescript/src/stream";

/** The bodies of the API, generated from its document by `make client`. */
export type Schemas = components["schemas"];
export type Role = "append" | "read" | "admin";
export type Caller = Schemas["CallerView"];
/** A page of a list. */
export type Paged = { next_cursor: string | null };
type Query = Record<string, string | number | boolean | null | undefined>;
type Headers = Record<string, string>;

const TIMEOUT_MS = 20_000;
/** For a call that does its work before it answers: a tool, a model, an erasure. */
export const SLOW_MS = 600_000;

/**
 * key: the key is refused; forbidden: it lacks a role; away: no response, or not now; missing: 404 and 410;
 * refused: the call cannot succeed, or another party, such as a model, refused it.
 */
export type FailureKind = "key" | "forbidden" | "away" | "missing" | "refused";

/** A failed call. */
export class ApiError extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
    readonly type: string = "",
  ) {
    super(message);
  }
}

/** The failure of a call as an ApiError, an unexpected one too. */
export function failureOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  console.error(error);
  return new ApiError("refused", String(error));
}

/** A path with encoded segments. */
export function path(...segments: (string | number)[]): string {
  return segments.map((each) => encodeURIComponent(String(each))).join("/");
}

/** The path of an app, or of something of it. */
export function appPath(app: string, ...rest: (string | number)[]): string {
  return path("v1", "apps", app, ...rest);
}

/** The path of a user, or of something of theirs. */
export function userPath(app: string, user: string, ...rest: (string | number)[]): string {
  return path("v1", "apps", app, "users", user, ...rest);
}

export class Api {
  readonly #key: string | null;

  constructor(key: string | null = null) {
    this.#key = key;
  }

  get<T>(route: string, query: Query = {}, signal?: AbortSignal): Promise<T> {
    return this.#call<T>("GET", withQuery(route, query), undefined, signal);
  }

  post<T>(route: string, body: unknown, options: { query?: Query; signal?: AbortSignal | undefined; timeoutMs?: number } = {}): Promise<T> {
    return this.#call<T>("POST", withQuery(route, options.query ?? {}), body, options.signal, options.timeoutMs);
  }

  /** @param options.onlyNew Refuse to change what exists. */
  put<T>(route: string, body?: unknown, { query = {}, onlyNew = false }: { query?: Query; onlyNew?: boolean } = {}): Promise<T> {
    const headers: Headers = onlyNew ? { "If-None-Match": "*" } : {};
    return this.#call<T>("PUT", withQuery(route, query), body, undefined, TIMEOUT_MS, headers);
  }

  delete<T>(route: string): Promise<T> {
    return this.#call<T>("DELETE", route);
  }

  /**
   * Follow a run, as the TypeScript client does. The key is sent in a header, so that no address contains it.
   *
   * @param cursor Continue after this frame.
   * @param connected Called when a connection stands, with false when one is lost.
   */
  followRun(
    owner: { app: string; user: string },
    run: string,
    options: { signal: AbortSignal; connected: (stands: boolean) => void },
  ): RunStream {
    const connect: Connect = async (cursor, { signal }) => {
      const query = { app_name: owner.app, user_id: owner.user };
      const headers = { ...this.#headers(), ...(cursor === null ? {} : { "Last-Event-ID": cursor }) };
      options.connected(false);
      const response = await fetch(withQuery(`api/runs/${path(run)}/events`, query), {
        headers,
        cache: "no-store",
        signal,
      });
      options.connected(response.ok);
      return response;
    };
    return new RunStream(run, connect, { signal: options.signal, reconnects: Number.POSITIVE_INFINITY });
  }

  /** Start a run of an agent; the response is not awaited to its end, since the run continues without this client. */
  async startRun(owner: { app: string; user: string }, agent: string, input: unknown): Promise<void> {
    const route = withQuery(`agui/${path(agent)}`, { app_name: owner.app, user_id: owner.user, history: "server" });
    const timer = new AbortController();
    const timeout = setTimeout(() => timer.abort(TIMED_OUT), TIMEOUT_MS);
    try {
      const response = await this.#fetch("POST", route, input, timer.signal);
      if (!response.ok) throw await problemOf(response);
    } finally {
      clearTimeout(timeout);
      timer.abort();
    }
  }

  #headers(): Headers {
    return this.#key ? { Authorization: `Bearer ${this.#key}` } : {};
  }

  async #fetch(method: string, route: string, body: unknown, signal: AbortSignal, more: Headers = {}): Promise<Response> {
    const headers = { ...this.#headers(), ...more, ...(body === undefined ? {} : { "Content-Type": "application/json" }) };
    const init: RequestInit = { method, headers, cache: "no-store", signal };
    if (body !== undefined) init.body = JSON.stringify(body);
    try {
      return await fetch(route, init);
    } catch (error) {
      if (signal.aborted && signal.reason !== TIMED_OUT) throw error;
      throw new ApiError("away", "");
    }
  }

  async #call<T>(
    method: string,
    route: string,
    body?: unknown,
    signal?: AbortSignal,
    timeoutMs = TIMEOUT_MS,
    headers: Headers = {},
  ): Promise<T> {
    const timer = new AbortController();
    const timeout = setTimeout(() => timer.abort(TIMED_OUT), timeoutMs);
    const both = signal ? AbortSignal.any([signal, timer.signal]) : timer.signal;
    try {
      const response = await this.#fetch(method, route, body, both, headers);
      if (!response.ok) throw await problemOf(response);
      if (response.status === 204) return undefined as T;
      try {
        return (await response.json()) as T;
      } catch (error) {
        if (signal?.aborted) throw error;
        throw new ApiError("away", "");
      }
    } finally {
      clearTimeout(timeout);
    }
  }
}

const TIMED_OUT = "timed out";

function withQuery(route: string, query: Query): string {
  const given = Object.entries(query).filter(([, value]) => value !== null && value !== undefined && value !== "");
  if (given.length === 0) return route;
  return `${route}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

async function problemOf(response: Response): Promise<ApiError> {
  const problem = (await response.json().catch(() => ({}))) as { type?: string; title?: string; detail?: string };
  const type = problem.type ?? "";
  const title = problem.title ?? `HTTP ${response.status}`;
  const message = problem.detail ? `${title}: ${problem.detail}` : title;
  return new ApiError(kindOf(response.status, type), message, type);
}

function kindOf(status: number, type: string): FailureKind {
  if (type.endsWith("/wrong-key") || status === 401) return "key";
  // These name the address of the page, not the key.
  if (/\/wrong-(host|origin)$/.test(type)) return "refused";
  if (status === 403) return "forbidden";
  if (/\/model-(unavailable|refused)$/.test(type)) return "refused";
  if (status === 404 || status === 410) return "missing";
  return status >= 500 || status === 429 ? "away" : "refused";
}
