// One object for one app. Types of bodies and responses are generated from the API's OpenAPI document (schema.d.ts).

import createClient, { type Client } from "openapi-fetch";

import { ConflictError, ConnectionFailedError, JobEndedError, problemOf, TimedOutError } from "./errors.js";
import type { components, paths } from "./schema.js";
import { type Connect, RunStream, SessionStream, type StreamOptions } from "./stream.js";
import { type CallOptions, checked, type Fetch, inTime, type Limit, type RetryOptions, send, sleep } from "./transport.js";

export type Schemas = components["schemas"];

const USER = "/v1/apps/{app_name}/users/{user_id}";
type UserPath<Rest extends string> = `${typeof USER}/${Rest}`;
type Query<P extends keyof paths> = paths[P] extends { get: { parameters: { query?: infer Q } } } ? NonNullable<Q> : never;
type Body<P extends keyof paths> = paths[P] extends {
  post: { requestBody: { content: { "application/json": infer B } } };
}
  ? B
  : never;

export type SearchOptions = Omit<Schemas["SearchInput"], "query">;
export type RecallOptions = Omit<Schemas["RecallInput"], "query">;
export type ContextOptions = Omit<Schemas["ContextInput"], "query">;
export type AskOptions = Omit<Body<UserPath<"ask">>, "question">;
export type ProfileOptions = Query<UserPath<"profile">>;
export type MemoryFilter = Omit<Query<UserPath<"memories">>, "cursor">;
export type FactFilter = Omit<Query<UserPath<"facts">>, "cursor">;
export type JobFilter = Omit<Query<UserPath<"jobs">>, "cursor">;

/** A message of a conversation, as for `add`. */
export interface Message {
  role: "user" | "assistant" | "tool";
  content: string;
  /** Makes adding the message again do nothing; a random one by default. */
  id?: string;
  /** The author; by default that of the role. */
  name?: string;
  /** When it was said, in seconds since 1970; now by default. */
  timestamp?: number;
}

export interface Added {
  sessionId: string;
  /** The session's version after the append. */
  version: number;
  /** How many messages were new. */
  added: number;
}

/** What a ticket is needed for. */
export interface TicketRequest {
  userId: string;
  /** Null for the stream of a session. */
  runId: string | null;
  /** Null if the caller did not name it. */
  sessionId: string | null;
  /** Whether an agent is to be run, or a run to be cancelled. */
  mayRun: boolean;
}

export interface HippocampusOptions {
  /** Such as http://127.0.0.1:8000. */
  baseUrl: string;
  app: string;
  /** A key of `hippocampus keys create`; never in a page. None if the API needs none, or for runs with tickets. */
  key?: string | undefined;
  /**
   * Return a ticket: a page asks its own backend; see `ticket`. It is used for every connection of a stream, and asked
   * for again when it has expired.
   */
  ticket?: ((wanted: TicketRequest) => Promise<string>) | undefined;
  /** Of each attempt of a call, in milliseconds; 30,000 by default. */
  timeoutMs?: number;
  /** Of one call that is safe to repeat: 4 attempts and 10,000 ms of pauses by default. */
  retry?: Partial<RetryOptions>;
  /** Replaces the global `fetch`. */
  fetch?: Fetch;
}

export interface FollowOptions extends StreamOptions {
  /** The run's session: a ticket is for a session. */
  sessionId?: string | undefined;
}

export interface RunAgentOptions extends StreamOptions {
  /** The agent's name; the default agent if none is given. */
  agent?: string | undefined;
  /** Whether the run goes on when its first connection is lost; `continue` by default. */
  onDisconnect?: "continue" | "cancel" | undefined;
  /** What becomes of an active run of the session, for an agent that runs alone; `refuse` the new one by default. */
  activeRun?: "refuse" | "cancel" | undefined;
  /** `server`: take the session's conversation, whatever messages are sent, and send it first. */
  history?: "same" | "server" | undefined;
}

export interface CancelOptions extends CallOptions {
  /** The run's session: a ticket is for a session. */
  sessionId?: string | undefined;
}

export interface TicketOptions extends CallOptions {
  /** Only this run; by default every run of the session, and the session's own stream. */
  runId?: string | undefined;
  /** Whether the page also runs agents in the session, and cancels their runs. Needs the role `append`. */
  mayRun?: boolean | undefined;
}

/** The input of a run as AG-UI has it; `runId` is random by default, and the same one again follows the same run. */
export type RunInput = Pick<Schemas["RunAgentInput"], "threadId" | "messages"> & Partial<Schemas["RunAgentInput"]>;

/** Of a ticket that has expired, or is for something else. */
const TICKET_REFUSED = 401;
/** What the connections of one stream name in their queries: a ticket is kept for the next one. */
interface Access {
  readonly wanted: TicketRequest;
  query: Record<string, string> | null;
}

const REPEATABLE = true;
const ONCE = false;
/** How much longer than the API's own limit an answer is waited for. */
const ANSWER_MARGIN_MS = 15_000;
const JOB_POLL_MS_MAX = 5000;
const LAST_LOOK_MS = 1000;
const EVENT_OF = {
  user: { author: "user", event_type: "user_message" },
  assistant: { author: "model", event_type: "assistant_message" },
  tool: { author: "tool", event_type: "message" },
} as const;

/**
 * Calls the API on behalf of one app. Every method takes the user first, and `signal` and `timeoutMs` last.
 *
 * Reads, searches, appends and enqueued jobs are repeated on a lost connection and on 429, 502, 503 and 504, after
 * Retry-After; other calls are sent once.
 */
export class Hippocampus {
  /** Every route, typed, with the key; errors are returned, not thrown, and only GET is repeated. */
  readonly api: Client<paths>;
  readonly app: string;
  readonly #baseUrl: string;
  readonly #key: string | undefined;
  readonly #ticket: HippocampusOptions["ticket"];
  readonly #timeoutMs: number;
  readonly #retry: RetryOptions;
  readonly #fetch: Fetch;

  constructor({ baseUrl, app, key, ticket, timeoutMs = 30_000, retry, fetch }: HippocampusOptions) {
    this.app = app;
    this.#baseUrl = baseUrl.replace(/\/+$/, "");
    this.#key = key;
    this.#ticket = ticket;
    this.#timeoutMs = checked("timeoutMs", timeoutMs);
    this.#retry = { attempts: 4, waitMs: 10_000, ...retry };
    checked("retry.attempts", this.#retry.attempts, { min: 1 });
    checked("retry.waitMs", this.#retry.waitMs);
    this.#fetch = fetch ?? ((request) => globalThis.fetch(request));
    this.api = createClient<paths>({
      baseUrl: this.#baseUrl,
      headers: this.#authorization(),
      fetch: (request) => send(request, this.#fetch, request.method === "GET", this.#retry, this.#limits(request)),
    });
  }

  // Sessions

  /** Create a session; ConflictError if the id is taken. */
  createSession(user: string, body: Schemas["SessionInput"] = {}, options?: CallOptions): Promise<Schemas["SessionView"]> {
    return this.#create(user, body, this.#how(ONCE, options));
  }

  /** Read a session with its newest events. */
  getSession(
    user: string,
    sessionId: string,
    query: Query<UserPath<"sessions/{session_id}">> = {},
    options?: CallOptions,
  ): Promise<Schemas["SessionView"]> {
    const params = { path: this.#session(user, sessionId), query };
    return this.#done(this.api.GET(`${USER}/sessions/{session_id}`, { params, ...this.#how(REPEATABLE, options) }));
  }

  /**
   * Append events, all or none. Events without an id get a random one, so a repetition within the call stores nothing
   * twice; choose the ids to be able to repeat the call itself.
   */
  append(
    user: string,
    sessionId: string,
    events: readonly Schemas["EventInput"][],
    more: Omit<Schemas["AppendInput"], "events"> & CallOptions = {},
  ): Promise<Schemas["AppendedView"]> {
    const { signal, timeoutMs, ...rest } = more;
    const body = { ...rest, events: events.map((event) => ({ ...event, id: event.id ?? randomId() })) };
    const request = { params: { path: this.#session(user, sessionId) }, body };
    const how = this.#how(REPEATABLE, { signal, timeoutMs });
    return this.#done(this.api.POST(`${USER}/sessions/{session_id}/events`, { ...request, ...how }));
  }

  /** Append a text of the user, or messages, to a session, which is created if there is none. */
  async add(
    user: string,
    messages: string | readonly Message[],
    more: { sessionId?: string } & CallOptions = {},
  ): Promise<Added> {
    const given: readonly Message[] = typeof messages === "string" ? [{ role: "user", content: messages }] : messages;
    const sessionId = more.sessionId ?? randomId();
    try {
      await this.#create(user, { session_id: sessionId }, this.#how(REPEATABLE, more));
    } catch (error) {
      if (!(error instanceof ConflictError && error.type.endsWith("/session-exists"))) throw error;
    }
    const events = given.map(({ role, content, id, name, timestamp }) => ({
      ...EVENT_OF[role],
      ...(name === undefined ? {} : { author: name }),
      ...(id === undefined ? {} : { id }),
      ...(timestamp === undefined ? {} : { timestamp }),
      content: { text: content },
    }));
    const { signal, timeoutMs } = more;
    const { version, events: stored } = await this.append(user, sessionId, events, { signal, timeoutMs });
    return { sessionId, version, added: stored.filter((event) => event.appended).length };
  }

  // Memory

  /** Search memories, facts and messages, best first. */
  async search(
    user: string,
    query: string,
    more: SearchOptions & CallOptions = {},
  ): Promise<Schemas["ResultView"][]> {
    const [body, options] = split({ query, ...more });
    const request = { ...this.#user(user), body, ...this.#how(REPEATABLE, options) };
    return (await this.#done(this.api.POST(`${USER}/search`, request))).results;
  }

  /** Return what is known for a query as one text: facts, then passages with their dates. */
  async recall(user: string, query = "", more: RecallOptions & CallOptions = {}): Promise<string> {
    const [body, options] = split({ query, ...more });
    const request = { ...this.#user(user), body, ...this.#how(REPEATABLE, options) };
    return (await this.#done(this.api.POST(`${USER}/recall`, request))).text;
  }

  /** Pack a context window. */
  context(user: string, query = "", more: ContextOptions & CallOptions = {}): Promise<Schemas["ContextView"]> {
    const [body, options] = split({ query, ...more });
    return this.#done(
      this.api.POST(`${USER}/context`, { ...this.#user(user), body, ...this.#how(REPEATABLE, options) }),
    );
  }

  /** Answer a question from what is remembered, with citations. Sent once: each call of a model costs money. */
  ask(user: string, question: string, more: AskOptions & CallOptions = {}): Promise<Schemas["AnswerView"]> {
    const [body, options] = split({ question, ...more });
    const timeoutMs = options.timeoutMs ?? (body.max_seconds ?? 60) * 1000 + ANSWER_MARGIN_MS;
    const how = this.#how(ONCE, { ...options, timeoutMs });
    return this.#done(this.api.POST(`${USER}/ask`, { ...this.#user(user), body, ...how }));
  }

  /** Read what holds of a user, on one page with its sources. */
  profile(user: string, more: ProfileOptions & CallOptions = {}): Promise<Schemas["ProfileView"]> {
    const [query, options] = split(more);
    const params = { path: this.#user(user).params.path, query };
    return this.#done(this.api.GET(`${USER}/profile`, { params, ...this.#how(REPEATABLE, options) }));
  }

  /** Yield a user's memories, strongest first. */
  memories(user: string, more: MemoryFilter & CallOptions = {}): AsyncGenerator<Schemas["MemoryView"]> {
    const [filter, options] = split(more);
    return pages(async (cursor) => {
      const params = { path: this.#user(user).params.path, query: { ...filter, cursor } };
      const page = await this.#done(this.api.GET(`${USER}/memories`, { params, ...this.#how(REPEATABLE, options) }));
      return [page.memories, page.next_cursor];
    });
  }

  /** Yield the facts about a user, current or at another time, by type and key. */
  facts(user: string, more: FactFilter & CallOptions = {}): AsyncGenerator<Schemas["FactView"]> {
    const [filter, options] = split(more);
    return pages(async (cursor) => {
      const params = { path: this.#user(user).params.path, query: { ...filter, cursor } };
      const page = await this.#done(this.api.GET(`${USER}/facts`, { params, ...this.#how(REPEATABLE, options) }));
      return [page.facts, page.next_cursor];
    });
  }

  /** Store a memory by hand. */
  remember(user: string, body: Schemas["MemoryInput"], options?: CallOptions): Promise<Schemas["EditView"]> {
    return this.#done(this.api.POST(`${USER}/memories`, { ...this.#user(user), body, ...this.#how(ONCE, options) }));
  }

  /** Store a fact by hand. */
  rememberFact(user: string, body: Schemas["FactInput"], options?: CallOptions): Promise<Schemas["EditView"]> {
    return this.#done(this.api.POST(`${USER}/facts`, { ...this.#user(user), body, ...this.#how(ONCE, options) }));
  }

  // Jobs

  /** Enqueue a consolidation and return its job's id. While a job waits, this returns the same one. */
  async consolidate(
    user: string,
    sessionId: string,
    body: Schemas["JobInput"] = {},
    options?: CallOptions,
  ): Promise<string> {
    const request = { params: { path: this.#session(user, sessionId) }, body, ...this.#how(REPEATABLE, options) };
    return (await this.#done(this.api.POST(`${USER}/sessions/{session_id}/jobs`, request))).job_id;
  }

  /** Read a job. */
  job(user: string, jobId: string, options?: CallOptions): Promise<Schemas["JobView"]> {
    const params = { path: { ...this.#user(user).params.path, job_id: jobId } };
    return this.#done(this.api.GET(`${USER}/jobs/{job_id}`, { params, ...this.#how(REPEATABLE, options) }));
  }

  /** Yield a user's jobs, newest first. */
  jobs(user: string, more: JobFilter & CallOptions = {}): AsyncGenerator<Schemas["JobView"]> {
    const [filter, options] = split(more);
    return pages(async (cursor) => {
      const params = { path: this.#user(user).params.path, query: { ...filter, cursor } };
      const page = await this.#done(this.api.GET(`${USER}/jobs`, { params, ...this.#how(REPEATABLE, options) }));
      return [page.jobs, page.next_cursor];
    });
  }

  /**
   * Wait until a job is completed, and return it. JobEndedError if it has failed or was cancelled, TimedOutError if it
   * has not ended after `waitMs` (5 minutes by default); it goes on.
   */
  async waitForJob(
    user: string,
    jobId: string,
    { waitMs = 300_000, ...options }: { waitMs?: number } & CallOptions = {},
  ): Promise<Schemas["JobView"]> {
    const end = performance.now() + checked("waitMs", waitMs);
    const timeoutMs = options.timeoutMs ?? this.#timeoutMs;
    for (let pause = 100; ; pause = Math.min(pause * 2, JOB_POLL_MS_MAX)) {
      // A read that is not answered takes no longer than the wait; the last one has a second.
      const left = Math.max(end - performance.now(), LAST_LOOK_MS);
      const job = await this.job(user, jobId, { ...options, timeoutMs: Math.min(timeoutMs, left) });
      if (job.status === "completed") return job;
      if (job.status === "failed" || job.status === "cancelled") throw new JobEndedError(job);
      const rest = end - performance.now();
      if (rest <= 0) throw new TimedOutError(`job ${jobId} is ${job.status} after ${waitMs} ms`);
      await sleep(Math.min(pause, rest), options.signal);
    }
  }

  // Runs

  /** Read a run. */
  run(user: string, runId: string, options?: CallOptions): Promise<Schemas["RunView"]> {
    const params = { path: { run_id: runId }, query: this.#owner(user) };
    return this.#done(this.api.GET("/api/runs/{run_id}", { params, ...this.#how(REPEATABLE, options) }));
  }

  /** Request the cancellation of a run. A run that has ended is not changed. */
  async cancelRun(user: string, runId: string, { sessionId, ...options }: CancelOptions = {}): Promise<Schemas["RunView"]> {
    const wanted = { userId: user, runId, sessionId: sessionId ?? null, mayRun: true };
    const { signal, timeoutMs = this.#timeoutMs } = options;
    const access = await inTime("no ticket", { signal, timeoutMs }, () => this.#access(wanted));
    // The document names only the ticket, which a page has in the owner's place.
    const params = { path: { run_id: runId }, query: access as object };
    return await this.#done(this.api.POST("/api/runs/{run_id}/cancel", { params, ...this.#how(REPEATABLE, options) }));
  }

  /**
   * Issue a ticket, with which a page follows a session, or one run of it, until the ticket expires: over any number of
   * connections.
   */
  ticket(user: string, sessionId: string, wanted: TicketOptions = {}): Promise<Schemas["TicketView"]> {
    // Plain JavaScript would get a ticket for the whole session.
    if (typeof wanted === "string") throw new TypeError("ticket takes { runId } in place of a run's id");
    const { runId, mayRun, ...options } = wanted;
    const body = { thread_id: sessionId, run_id: runId ?? null, may_run: mayRun ?? false };
    const request = { params: { query: this.#owner(user) }, body, ...this.#how(REPEATABLE, options) };
    return this.#done(this.api.POST("/api/tickets", request));
  }

  /** Follow a run from its start, or after a cursor. The stream opens when it is iterated. */
  followRun(user: string, runId: string, options: FollowOptions = {}): RunStream {
    const wanted = { userId: user, runId, sessionId: options.sessionId ?? null, mayRun: false };
    return new RunStream(runId, this.#following(`/api/runs/${encodeURIComponent(runId)}/events`, this.#held(wanted)), options);
  }

  /** Follow a session, from its active run or after a cursor: every run, and every event of none as a run of its own. */
  followSession(user: string, sessionId: string, options: StreamOptions = {}): SessionStream {
    const wanted = { userId: user, runId: null, sessionId, mayRun: false };
    const path = `/api/threads/${encodeURIComponent(sessionId)}/events`;
    return new SessionStream(sessionId, this.#following(path, this.#held(wanted)), options);
  }

  /** Start a run of an agent of the writer, and follow it. A run executes once, however often its start is repeated. */
  runAgent(
    user: string,
    input: RunInput,
    { agent, onDisconnect, activeRun, history, ...options }: RunAgentOptions = {},
  ): RunStream {
    const body: Schemas["RunAgentInput"] = { protocolVersion: "1.0", ...input, runId: input.runId ?? randomId() };
    const wanted = { userId: user, runId: body.runId, sessionId: body.threadId, mayRun: true };
    const query: Record<string, string> = {
      ...(onDisconnect && { on_disconnect: onDisconnect }),
      ...(activeRun && { active_run: activeRun }),
      ...(history && { history }),
    };
    const path = agent === undefined ? "/agui" : `/agui/${encodeURIComponent(agent)}`;
    const headers = { "Content-Type": "application/json" };
    const access = this.#held(wanted);
    const starting = this.#opening(path, access, () => query, { method: "POST", headers, body: JSON.stringify(body) });
    const following = this.#following(`/api/runs/${encodeURIComponent(body.runId)}/events`, access);
    let isStarted = options.cursor != null;
    const connect = async (cursor: string | null, limit: Limit): Promise<Response> => {
      if (isStarted) return await following(cursor, limit);
      const response = await starting(cursor, limit);
      isStarted = response.ok;
      return response;
    };
    return new RunStream(body.runId, connect, options);
  }

  #create(user: string, body: Schemas["SessionInput"], how: { fetch: Fetch }): Promise<Schemas["SessionView"]> {
    return this.#done(this.api.POST(`${USER}/sessions`, { ...this.#user(user), body, ...how }));
  }

  /** How to follow what a path names, after a cursor. */
  #following(path: string, access: Access): Connect {
    return this.#opening(path, access, (cursor): Record<string, string> => (cursor === null ? {} : { offset: cursor }), {});
  }

  /** How to open a stream: with the key, or with one ticket until it is refused. */
  #opening(
    path: string,
    access: Access,
    query: (cursor: string | null) => Record<string, string>,
    { headers, ...how }: RequestInit,
  ): Connect {
    return async (cursor, limit) => {
      for (;;) {
        const isNew = access.query === null;
        access.query ??= await this.#access(access.wanted);
        const url = `${this.#baseUrl}${path}?${new URLSearchParams({ ...query(cursor), ...access.query })}`;
        // Nothing but simple headers with a ticket: a page that follows a stream of another origin needs no preflight.
        const sent = { Accept: "text/event-stream", ...headers, ...(this.#ticket ? {} : this.#authorization()) };
        const response = await this.#fetch(limit.on(url, { ...how, headers: sent, cache: "no-store" }));
        if (!this.#ticket || isNew || response.status !== TICKET_REFUSED) return response;
        await response.body?.cancel();
        access.query = null;
      }
    };
  }

  #held(wanted: TicketRequest): Access {
    return { wanted, query: null };
  }

  /** What a request of runs names in its query: the owner, or a ticket of theirs. */
  async #access(wanted: TicketRequest): Promise<Record<string, string>> {
    return this.#ticket ? { ticket: await this.#ticket(wanted) } : this.#owner(wanted.userId);
  }

  #authorization(): Record<string, string> {
    return this.#key === undefined ? {} : { Authorization: `Bearer ${this.#key}` };
  }

  #owner(user: string): { app_name: string; user_id: string } {
    return { app_name: this.app, user_id: user };
  }

  #user(user: string): { params: { path: { app_name: string; user_id: string } } } {
    return { params: { path: this.#owner(user) } };
  }

  #session(user: string, sessionId: string): { app_name: string; user_id: string; session_id: string } {
    return { ...this.#owner(user), session_id: sessionId };
  }

  #limits({ signal, timeoutMs }: CallOptions): CallOptions {
    return { signal, timeoutMs: timeoutMs ?? this.#timeoutMs };
  }

  #how(isRepeatable: boolean, options: CallOptions = {}): { fetch: Fetch } {
    return { fetch: (request) => send(request, this.#fetch, isRepeatable, this.#retry, this.#limits(options)) };
  }

  /** Return the body of a response, or throw its problem. */
  async #done<T>(call: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
    const { data, error, response } = await call.catch((cause: unknown) => {
      // Of a proxy that answers in the API's place, such as a page to log in with.
      if (cause instanceof SyntaxError) throw new ConnectionFailedError("the response is not of this API", { cause });
      throw cause;
    });
    if (response.ok) return data as T;
    // openapi-fetch has read the body.
    throw await problemOf(new Response(JSON.stringify(error), response));
  }
}

/** Part what goes into the request from what says how it is sent. */
function split<T extends CallOptions>(given: T): [Omit<T, keyof CallOptions>, CallOptions] {
  const { signal, timeoutMs, ...rest } = given;
  return [rest, { signal, timeoutMs }];
}

async function* pages<T>(
  read: (cursor: string | null) => Promise<[readonly T[], string | null]>,
): AsyncGenerator<T, void, undefined> {
  let cursor: string | null = null;
  do {
    const [items, following]: [readonly T[], string | null] = await read(cursor);
    yield* items;
    cursor = following;
  } while (cursor !== null);
}

/** Also where `crypto.randomUUID` is missing: in a page that was not loaded over HTTPS. */
function randomId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
