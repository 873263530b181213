// Follows a run: its events as they arrive, and whether the connection stands.

import { useEffect, useRef, useState } from "preact/hooks";

import { ProblemError } from "../../../../clients/typescript/src/errors";
import type { AgUiEvent } from "../../../../clients/typescript/src/stream";
import { useSession } from "../../core/session";
import type { Owner } from ".";

export interface LoggedEvent {
  number: number;
  cursor: string | null;
  event: AgUiEvent;
}

export interface FollowedRun {
  /** The newest ones. */
  events: readonly LoggedEvent[];
  /** Where steps, calls of tools and the run itself begin and end, also those before `events`. */
  marks: readonly AgUiEvent[];
  seen: number;
  isConnected: boolean;
  /** Why nothing more comes, such as that its events were pruned. */
  problem: string | null;
}

const EVENTS_MAX = 500;
const MARKS_MAX = 5000;
const MARKS = new Set(["STEP_STARTED", "STEP_FINISHED", "TOOL_CALL_START", "TOOL_CALL_RESULT", "RUN_FINISHED", "RUN_ERROR"]);
const EMPTY: FollowedRun = { events: [], marks: [], seen: 0, isConnected: true, problem: null };

/** Follow a run from its start; nothing while `run` is null. */
export function useRunStream(owner: Owner, run: string | null, received?: (event: AgUiEvent, cursor: string | null) => void): FollowedRun {
  const { api } = useSession();
  const [state, setState] = useState(EMPTY);
  const receive = useRef(received);
  receive.current = received;
  useEffect(() => {
    setState(EMPTY);
    if (run === null) return undefined;
    const controller = new AbortController();
    let pending: LoggedEvent[] = [];
    let seen = 0;
    let frame = 0;
    const flush = () => {
      const added = pending;
      pending = [];
      const marks = added.map((each) => each.event).filter((each) => MARKS.has(each.type));
      setState((last) => ({
        ...last,
        seen,
        events: [...last.events, ...added].slice(-EVENTS_MAX),
        marks: marks.length > 0 ? [...last.marks, ...marks].slice(-MARKS_MAX) : last.marks,
      }));
    };
    const follow = async () => {
      const connected = (isConnected: boolean) => {
        if (!controller.signal.aborted) setState((last) => (last.isConnected === isConnected ? last : { ...last, isConnected }));
      };
      const stream = api.followRun(owner, run, { signal: controller.signal, connected });
      for await (const event of stream) {
        seen += 1;
        pending.push({ number: seen, cursor: stream.cursor, event });
        receive.current?.(event, stream.cursor);
        cancelAnimationFrame(frame);
        frame = requestAnimationFrame(flush);
      }
    };
    follow().catch((error: unknown) => {
      if (controller.signal.aborted) return;
      if (!(error instanceof ProblemError)) throw error;
      setState((last) => ({ ...last, problem: error.message }));
    });
    return () => {
      controller.abort();
      cancelAnimationFrame(frame);
    };
  }, [api, owner.app, owner.user, run]);
  return state;
}
