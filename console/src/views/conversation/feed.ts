// The items of a conversation: stored ones, page by page, and after them the messages that are being streamed.

import { useEffect, useReducer, useRef } from "preact/hooks";

import type { AgUiEvent } from "../../../../clients/typescript/src/stream";
import { type Api, ApiError, type Schemas, userPath } from "../../core/api";
import { noteFailure } from "../../core/hooks";
import { useSession } from "../../core/session";

export type Item = Schemas["TimelineView"]["timeline"][number];

/** A message that is being streamed. */
export interface LiveItem {
  id: string;
  type: "user_message" | "assistant_message" | "thought";
  live: true;
  content: string;
  ended: boolean;
}

export interface Feed {
  items: (Item | LiveItem)[];
  /** null until the first page has arrived. */
  isReady: boolean;
  error: ApiError | null;
  hasEarlier: boolean;
  isReading: boolean;
  earlier: () => void;
  /** Read the next page after the last item; undefined once the newest one is there. */
  later: (() => void) | undefined;
  /** Read what was stored since the last read. */
  refresh: () => void;
  /** Read all that follows, as far as the newest item. */
  catchUp: () => void;
  /** Take an event of the stream of a run in progress. */
  receive: (event: AgUiEvent, position: string | null) => void;
}

const PAGE = 100;
const NEWEST = "9007199254740991";
const SETTLE_MS = 60;
const AGAIN_MS = 3000;
/** The items after a turn that is opened by its number. */
const AFTER_TURN = 40;
const STORED = new Set([
  "TEXT_MESSAGE_END",
  "REASONING_MESSAGE_END",
  "TOOL_CALL_END",
  "TOOL_CALL_RESULT",
  "MESSAGES_SNAPSHOT",
  "RUN_STARTED",
  "RUN_FINISHED",
  "RUN_ERROR",
]);
// The id of a frame of a stored event, without open texts: the frame is within the event after that number.
const STORED_POSITION = /^\d+(\.\d+)?$/;

class Store {
  items: Item[] = [];
  live = new Map<string, LiveItem>();
  isReady = false;
  hasEarlier = false;
  /** A feed that began at a turn may end before the newest item. */
  hasLater = false;
  isReading = false;
  error: ApiError | null = null;
  #last = 0;
  #first: number | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isRunning = false;
  #again = false;
  #isWhole = false;
  #frame = 0;
  readonly #signal = new AbortController();

  constructor(
    private readonly api: Api,
    private readonly route: string,
    private readonly turn: number | null,
    private readonly changed: () => void,
    private readonly failed: (error: unknown) => ApiError | null,
  ) {
    this.#isWhole = turn === null;
  }

  close(): void {
    this.#signal.abort();
    clearTimeout(this.#timer);
    cancelAnimationFrame(this.#frame);
  }

  /** What is stored is read when the reader comes near the end, unless it follows the last item. */
  refresh = (): void => {
    if (!this.hasLater) this.#schedule(SETTLE_MS);
  };

  later = (): void => this.#schedule(0);

  catchUp = (): void => {
    this.#isWhole = true;
    this.#schedule(SETTLE_MS);
  };

  #schedule(ms: number): void {
    if (this.#isRunning) {
      this.#again = true;
      return;
    }
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#run(), ms);
  }

  async #run(): Promise<void> {
    this.#isRunning = true;
    try {
      if (this.isReady) await this.#readOn();
      else await this.#begin();
      this.error = null;
    } catch (error) {
      if (this.#signal.signal.aborted) return;
      this.error = this.failed(error);
      if (this.error?.kind === "away") this.#timer = setTimeout(() => void this.#run(), AGAIN_MS);
    } finally {
      this.#isRunning = false;
    }
    this.changed();
    if (this.#again) {
      this.#again = false;
      this.refresh();
    }
  }

  async #begin(): Promise<void> {
    const before = this.turn === null ? NEWEST : this.turn + AFTER_TURN;
    const page = await this.#read({ before_sequence: before, limit: PAGE });
    this.items = page.timeline;
    this.#first = page.previousSequence;
    this.hasEarlier = page.previousSequence !== null;
    this.#last = Math.max(0, ...page.timeline.map((each) => each.sequenceNumber));
    this.isReady = true;
    this.hasLater = !this.#isWhole;
    this.changed();
    await this.#readOn();
  }

  async #readOn(): Promise<void> {
    // In the stream a message ends when it is stored: messages that have ended are in the pages that are read now.
    const ended = [...this.live.values()].filter((each) => each.ended).map((each) => each.id);
    for (let more = true; more; ) {
      const page = await this.#read({ after_sequence: this.#last, limit: PAGE });
      const known = new Set(page.timeline.map((each) => each.id));
      this.items = [...this.items, ...page.timeline];
      this.#dropLive((id) => known.has(id));
      this.#last = Math.max(this.#last, ...page.timeline.map((each) => each.sequenceNumber));
      more = page.nextCursor !== null;
      this.hasLater = !this.#isWhole && more;
      // The rest is read as the reader scrolls.
      if (this.hasLater) return;
    }
    this.#dropLive((id) => ended.includes(id));
  }

  earlier = (): void => {
    if (this.isReading || this.#first === null) return;
    this.isReading = true;
    this.changed();
    this.#read({ before_sequence: this.#first, limit: PAGE }).then(
      (page) => {
        this.isReading = false;
        this.items = [...page.timeline, ...this.items];
        this.#first = page.previousSequence;
        this.hasEarlier = page.previousSequence !== null;
        this.changed();
      },
      (error: unknown) => {
        if (this.#signal.signal.aborted) return;
        this.isReading = false;
        this.error = this.failed(error);
        this.changed();
      },
    );
  };

  receive = (event: AgUiEvent, position: string | null): void => {
    if (STORED.has(event.type)) this.refresh();
    switch (event.type) {
      case "TEXT_MESSAGE_START":
        this.#begins(event.messageId, event.role === "user" ? "user_message" : "assistant_message", position);
        break;
      case "REASONING_MESSAGE_START":
        this.#begins(event.messageId, "thought", position);
        break;
      case "TEXT_MESSAGE_CONTENT":
      case "REASONING_MESSAGE_CONTENT":
        this.#grows(event.messageId, event.delta);
        break;
      case "TEXT_MESSAGE_END":
      case "REASONING_MESSAGE_END":
        this.#ends(event.messageId);
        break;
      case "RUN_FINISHED":
      case "RUN_ERROR":
        for (const id of this.live.keys()) this.#ends(id);
        break;
      case "MESSAGES_SNAPSHOT":
        this.#dropLive(() => true);
        break;
      default:
        break;
    }
  };

  #begins(id: string, type: LiveItem["type"], position: string | null): void {
    const isShown = position !== null && STORED_POSITION.test(position) && Number.parseInt(position, 10) < this.#last;
    if (isShown || this.live.has(id) || this.items.some((each) => each.id === id)) return;
    this.live.set(id, { id, type, live: true, content: "", ended: false });
    this.#soon();
  }

  #grows(id: string, delta: string): void {
    const open = this.live.get(id);
    if (open) this.live.set(id, { ...open, content: open.content + delta });
    this.#soon();
  }

  #ends(id: string): void {
    const open = this.live.get(id);
    if (open) this.live.set(id, { ...open, ended: true });
    this.#soon();
  }

  #dropLive(which: (id: string) => boolean): void {
    for (const id of [...this.live.keys()]) if (which(id)) this.live.delete(id);
  }

  /** Show the pieces of one frame together. */
  #soon(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = requestAnimationFrame(this.changed);
  }

  #read(query: Record<string, string | number>): Promise<Schemas["TimelineView"]> {
    return this.api.get<Schemas["TimelineView"]>(this.route, query, this.#signal.signal);
  }
}

/** Follow the items of a conversation. `turn`: begin around this number, instead of at the end. */
export function useFeed({ app, user }: { app: string; user: string }, thread: string, turn: number | null): Feed {
  const session = useSession();
  const [, update] = useReducer((count: number) => count + 1, 0);
  const store = useRef<Store | null>(null);
  const route = userPath(app, user, "conversations", thread, "messages");
  if (store.current === null) {
    store.current = new Store(session.api, route, turn, () => update(undefined), (error) => noteFailure(error, session));
  }
  const current = store.current;
  useEffect(() => {
    current.refresh();
    return () => current.close();
  }, [current]);
  return {
    items: current.hasLater ? current.items : [...current.items, ...current.live.values()],
    isReady: current.isReady,
    error: current.error,
    hasEarlier: current.hasEarlier,
    isReading: current.isReading,
    earlier: current.earlier,
    later: current.hasLater ? current.later : undefined,
    catchUp: current.catchUp,
    refresh: current.refresh,
    receive: current.receive,
  };
}
