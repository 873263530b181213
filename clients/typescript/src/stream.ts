// Follows a run or a session over SSE. Each frame has an id; after a cut, a new connection continues after the last one.

import type { Event, EventType } from "@ag-ui/core";
import { createParser } from "eventsource-parser";

import { ClientError, ConnectionFailedError, problemOf } from "./errors.js";
import { checked, Limit, pauseMs, sleep, TRANSIENT } from "./transport.js";

// The types of AG-UI name an enum. Only its values are on the wire, and a consumer needs no import to compare them.
type OfType<E> = E extends { type: infer T extends EventType } ? Omit<E, "type"> & { type: `${T}` } : never;

/** An event of AG-UI 1.0, told apart by its `type`. */
export type AgUiEvent = OfType<Event>;

export interface StreamOptions {
  /** Ends the stream: the iteration throws the signal's reason. A run goes on. */
  signal?: AbortSignal | undefined;
  /** Continue after the event with this id (`cursor` of a stream); by default from the start of the run, or of the active one. */
  cursor?: string | null | undefined;
  /** Reconnect after this time without a byte; the API sends a heartbeat every 30 seconds unless set otherwise. */
  idleMs?: number | undefined;
  /** Connections that may fail one after the other before the stream throws. */
  reconnects?: number | undefined;
}

/** Open a connection that continues after a cursor, and ends with a limit. */
export type Connect = (cursor: string | null, limit: Limit) => Promise<Response>;

/** The pause before the first reconnection, unless the stream named one. */
const FIRST_PAUSE_MS = 500;
/** A connection over which bytes flowed for this long did not fail. */
const LASTING_MS = 30_000;

/**
 * Events, each once, over as many connections as it takes.
 *
 * `for await` throws a ProblemError where reconnecting does not help (there is no such run, the key is wrong), and a
 * ConnectionFailedError after too many failed connections. Leaving the loop closes the connection; another loop over the
 * same stream continues after the last event. Loops at the same time have a connection and a position each.
 */
export class EventStream implements AsyncIterable<AgUiEvent> {
  readonly #name: string;
  readonly #connect: Connect;
  readonly #isLast: (event: AgUiEvent) => boolean;
  readonly #options: StreamOptions;
  #cursor: string | null;
  #pauseMs = FIRST_PAUSE_MS;

  /** @param isLast Whether nothing follows an event. */
  constructor(name: string, connect: Connect, isLast: (event: AgUiEvent) => boolean, options: StreamOptions = {}) {
    this.#name = name;
    this.#connect = connect;
    this.#isLast = isLast;
    this.#options = options;
    this.#cursor = options.cursor ?? null;
  }

  /** The id of the event that was received last, from which any later stream of the same continues. */
  get cursor(): string | null {
    return this.#cursor;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<AgUiEvent, void, undefined> {
    const { signal, idleMs = 75_000, reconnects = 10 } = this.#options;
    checked("idleMs", idleMs);
    checked("reconnects", reconnects);
    let position = this.#cursor;
    for (let failures = 0; ; ) {
      const connection = new Connection(
        idleMs,
        signal,
        (ms) => (this.#pauseMs = ms),
        (cursor) => {
          position ??= cursor;
          this.#cursor ??= cursor;
        },
      );
      let response: Response | null = null;
      let cause: unknown = null;
      try {
        response = await connection.open((limit) => this.#connect(position, limit));
        // The client has the last event.
        if (response.status === 204) return;
        if (response.ok) {
          for await (const frame of connection.frames(response)) {
            const event = JSON.parse(frame.data) as AgUiEvent;
            // An event without an id may be the same one again, such as the error of a stream that cannot be read.
            if (frame.id !== undefined && frame.id !== position) {
              this.#cursor = position = frame.id;
              failures = 0;
            }
            yield event;
            if (this.#isLast(event)) return;
            signal?.throwIfAborted();
          }
        } else {
          const problem = await problemOf(response);
          if (!TRANSIENT.has(response.status)) throw problem;
          cause = problem;
        }
      } catch (error) {
        signal?.throwIfAborted();
        if (error instanceof ClientError && !(error instanceof ConnectionFailedError)) throw error;
        cause = error;
      } finally {
        connection.close();
        // Node's fetch may have forgotten the signal, and would leave the connection open.
        void response?.body?.cancel().catch(() => undefined);
      }
      if (connection.flowedMs > LASTING_MS) failures = 0;
      failures += 1;
      if (failures > reconnects) {
        const what = `the stream of ${this.#name} was interrupted, and ${reconnects} connections failed`;
        throw new ConnectionFailedError(what, { cause });
      }
      await sleep(pauseMs(failures, this.#pauseMs, response), signal);
    }
  }
}

/** The events of a run to its end: RUN_FINISHED or RUN_ERROR. */
export class RunStream extends EventStream {
  readonly runId: string;

  constructor(runId: string, connect: Connect, options: StreamOptions = {}) {
    super(`run ${runId}`, connect, ({ type }) => type === "RUN_FINISHED" || type === "RUN_ERROR", options);
    this.runId = runId;
  }
}

/** The events of a session, run after run. It does not end by itself: leave the loop, or give a signal. */
export class SessionStream extends EventStream {
  readonly sessionId: string;

  constructor(sessionId: string, connect: Connect, options: StreamOptions = {}) {
    super(`session ${sessionId}`, connect, () => false, options);
    this.sessionId = sessionId;
  }
}

interface Frame {
  id: string | undefined;
  data: string;
}

/** One connection, which is closed after a time without a byte. */
class Connection {
  readonly #limit: Limit;
  readonly #idleMs: number;
  readonly #onRetry: (ms: number) => void;
  readonly #onStart: (cursor: string) => void;
  /** When the first and the last byte of the events came. */
  #firstAt = 0;
  #lastAt = 0;

  /**
   * @param onRetry Called with the time after which the stream asks its client to reconnect.
   * @param onStart Called with the cursor of a stream's start, which comes before its first event.
   */
  constructor(
    idleMs: number,
    signal: AbortSignal | undefined,
    onRetry: (ms: number) => void,
    onStart: (cursor: string) => void,
  ) {
    this.#onRetry = onRetry;
    this.#onStart = onStart;
    this.#limit = new Limit(signal);
    this.#idleMs = idleMs;
    this.#limit.restart(idleMs);
  }

  open(connect: (limit: Limit) => Promise<Response>): Promise<Response> {
    return this.#limit.within(() => connect(this.#limit));
  }

  async *frames(response: Response): AsyncGenerator<Frame> {
    let received: Frame[] = [];
    const parser = createParser({
      onEvent: ({ id, data }) => void received.push({ id, data }),
      onRetry: this.#onRetry,
      // An id without an event is not shown by the parser: the comment beside it says the same.
      onComment: (text) => {
        if (text.startsWith("cursor ")) this.#onStart(text.slice("cursor ".length));
      },
    });
    const decoder = new TextDecoder();
    const reader = response.body?.getReader();
    try {
      for (;;) {
        const piece = reader && (await this.#limit.within(() => reader.read()));
        if (!piece || piece.done) return;
        this.#lastAt = performance.now();
        this.#firstAt ||= this.#lastAt;
        // Not while the consumer works on an event: its time is not the connection's.
        this.#limit.pause();
        parser.feed(decoder.decode(piece.value, { stream: true }));
        const frames = received;
        received = [];
        yield* frames;
        this.#limit.restart(this.#idleMs);
      }
    } finally {
      reader?.releaseLock();
    }
  }

  /** For how long bytes came. */
  get flowedMs(): number {
    return this.#lastAt - this.#firstAt;
  }

  close(): void {
    this.#limit.end();
    this.#limit.close();
  }
}
