// What views use to read: one answer, pages of a list, and small helpers.

import type { RefObject } from "preact";
import { useCallback, useEffect, useRef, useState } from "preact/hooks";

import { type Api, ApiError, failureOf, type Paged } from "./api";
import { type Session, useSession } from "./session";

const AGAIN_MS = 3000;

export interface Load<T> {
  /** null until the first answer. The last answer stays while it is read again. */
  data: T | null;
  error: ApiError | null;
  loading: boolean;
  reload: () => void;
}

/**
 * Report a failure that concerns the whole page; return the error of a call, or null if the call was aborted.
 *
 * @param options.retries Whether the caller calls again by itself, as the notice of a server that is away says.
 */
export function noteFailure(error: unknown, session: Session, { retries = true } = {}): ApiError | null {
  if (error instanceof DOMException && error.name === "AbortError") return null;
  const found = failureOf(error);
  if (found.kind === "key") session.refused();
  if (found.kind === "away" && retries) session.away(true);
  return found;
}

/**
 * Read something, and again when `keys` change. While the server is away it is read again every few seconds.
 *
 * @param read null: there is nothing to read.
 * @param options.everyMs Read again after this time, while the page is visible.
 * @param options.round Another number reads again, too; what is shown stays until the answer.
 */
export function useLoad<T>(
  read: ((api: Api, signal: AbortSignal) => Promise<T>) | null,
  keys: readonly unknown[],
  { everyMs = null, round: outer = 0 }: { everyMs?: number | null; round?: number } = {},
): Load<T> {
  const session = useSession();
  const [state, setState] = useState<{ data: T | null; error: ApiError | null; loading: boolean; of: string }>({
    data: null,
    error: null,
    loading: read !== null,
    of: "",
  });
  const [round, setRound] = useState(0);
  const of = JSON.stringify(keys);
  useEffect(() => {
    if (read === null) return undefined;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (ms: number) => {
      timer = setTimeout(() => (document.visibilityState === "visible" ? run() : again(ms)), ms);
    };
    const run = () => {
      read(session.api, controller.signal).then(
        (data) => {
          if (controller.signal.aborted) return;
          session.away(false);
          setState({ data, error: null, loading: false, of });
          if (everyMs !== null) again(everyMs);
        },
        (failure: unknown) => {
          if (controller.signal.aborted) return;
          const error = noteFailure(failure, session);
          setState((last) => ({ data: last.of === of ? last.data : null, error, loading: false, of }));
          if (error?.kind === "away") again(AGAIN_MS);
        },
      );
    };
    setState((last) => ({ ...last, data: last.of === of ? last.data : null, error: null, loading: true }));
    run();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [of, round, outer, session.api, read === null, everyMs]);
  const reload = useCallback(() => setRound((last) => last + 1), []);
  return { data: state.of === of ? state.data : null, error: state.error, loading: state.loading, reload };
}

export interface Pages<Row> {
  rows: Row[];
  error: ApiError | null;
  loading: boolean;
  /** Whether there may be further rows. */
  hasMore: boolean;
  /** Read the next page. */
  more: () => void;
  /** Read as many pages as are shown again; the rows stay until all have arrived. */
  reload: () => void;
  /** Read the page that failed again. */
  retry: () => void;
}

/**
 * Read a list page by page.
 *
 * @param outer Another number reads it again; see `reload`.
 */
export function usePages<Page extends Paged, Row>(
  read: ((api: Api, cursor: string | null, signal: AbortSignal) => Promise<Page>) | null,
  rowsOf: (page: Page) => Row[],
  keys: readonly unknown[],
  outer = 0,
): Pages<Row> {
  const session = useSession();
  const of = JSON.stringify(keys);
  const empty = { rows: [] as Row[], cursor: null as string | null, isEnd: false, count: 0, of };
  const [state, setState] = useState(empty);
  const [error, setError] = useState<ApiError | null>(null);
  const [loading, setLoading] = useState(read !== null);
  const [round, setRound] = useState(0);
  const running = useRef<AbortController | null>(null);
  // What comes before the page that is read, or failed last.
  const last = useRef(empty);
  // How many pages are wanted.
  const wanted = useRef(1);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const shown = state.of === of ? state : empty;

  const load = (before: typeof empty) => {
    if (read === null) return;
    clearTimeout(timer.current);
    const controller = new AbortController();
    running.current = controller;
    last.current = before;
    setLoading(true);
    setError(null);
    read(session.api, before.cursor, controller.signal).then(
      (page) => {
        if (controller.signal.aborted) return;
        running.current = null;
        session.away(false);
        const isEnd = page.next_cursor === null;
        const found = { rows: [...before.rows, ...rowsOf(page)], cursor: page.next_cursor, isEnd, count: before.count + 1, of };
        if (!isEnd && found.count < wanted.current) {
          load(found);
          return;
        }
        setLoading(false);
        setState(found);
      },
      (failure: unknown) => {
        if (controller.signal.aborted) return;
        running.current = null;
        setLoading(false);
        const found = noteFailure(failure, session);
        setError(found);
        if (found?.kind === "away") timer.current = setTimeout(() => load(before), AGAIN_MS);
      },
    );
  };

  useEffect(() => {
    wanted.current = Math.max(1, shown.count);
    load(empty);
    return () => {
      clearTimeout(timer.current);
      running.current?.abort();
      running.current = null;
    };
  }, [of, round, outer, session.api, read === null]);

  return {
    rows: shown.rows,
    error,
    loading: loading || shown !== state,
    hasMore: read !== null && !shown.isEnd,
    more: () => {
      if (shown.isEnd || shown.cursor === null) return;
      wanted.current = shown.count + 1;
      if (running.current === null) load(shown);
    },
    reload: useCallback(() => setRound((count) => count + 1), []),
    retry: () => {
      if (running.current === null) load(last.current);
    },
  };
}

/** The value, once it has not changed for some time. */
export function useSettled<T>(value: T, ms = 200): T {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

export interface Action {
  run: () => void;
  busy: boolean;
  error: ApiError | null;
}

/** A change that a control makes; `then` is called after it, unless the control is gone by then. */
export function useAction<T>(call: (api: Api) => Promise<T>, then?: (result: T) => void): Action {
  const session = useSession();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const isGone = useRef(false);
  useEffect(() => {
    isGone.current = false;
    return () => {
      isGone.current = true;
    };
  }, []);
  const run = () => {
    setBusy(true);
    setError(null);
    call(session.api).then(
      (result) => {
        if (isGone.current) return;
        setBusy(false);
        then?.(result);
      },
      (failure: unknown) => {
        // Also of a control that is gone: a refused key concerns the whole page.
        const found = noteFailure(failure, session, { retries: false });
        if (isGone.current) return;
        setBusy(false);
        setError(found);
      },
    );
  };
  return { run, busy, error };
}

/** The width of an element in pixels, as it changes. */
export function useWidth<E extends HTMLElement>(): [(element: E | null) => void, number] {
  const [width, setWidth] = useState(0);
  const observer = useRef<ResizeObserver | null>(null);
  const take = useCallback((element: E | null) => {
    observer.current?.disconnect();
    observer.current = null;
    if (element === null) return;
    setWidth(element.clientWidth);
    observer.current = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.current.observe(element);
  }, []);
  return [take, width];
}

/** The text of a field that begins with a value of the address, and shows it again when that changes: Back, or a link. */
export function useTyped(value: string): [string, (text: string) => void] {
  const [text, setText] = useState(value);
  const [last, setLast] = useState(value);
  if (value !== last) {
    setLast(value);
    setText(value);
  }
  return [text, setText];
}

/** Call a function once for the changes of a counter within some milliseconds, but not for its first value. */
export function useRounds(round: number, call: () => void, ms = 120): void {
  const first = useRef(round);
  const latest = useRef(call);
  latest.current = call;
  useEffect(() => {
    if (round === first.current) return undefined;
    const timer = setTimeout(() => latest.current(), ms);
    return () => clearTimeout(timer);
  }, [round, ms]);
}

/** Move the focus into a detail that a control of the page opened, and back to that control when the detail closes. */
export function useOpened<E extends HTMLElement>(isDetail = true): RefObject<E | null> {
  const element = useRef<E>(null);
  useEffect(() => {
    const shown = element.current;
    const before = document.activeElement;
    // A page that begins with the detail open leaves the focus where it is.
    if (!isDetail || shown === null || !(before instanceof HTMLElement) || before === document.body) return undefined;
    shown.focus();
    return () => {
      const isInside = shown.contains(document.activeElement) || document.activeElement === document.body;
      if (isInside && before.isConnected) before.focus();
    };
  }, []);
  return element;
}
