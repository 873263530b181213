// One conversation: its items, its live run, the composer, and the panel beside it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import type { Api, Schemas } from "../../core/api";
import { useAction, useLoad } from "../../core/hooks";
import { newId } from "../../core/ids";
import { go, Link, linkTo, useAddress } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, Empty, ErrorBox, Folded, json, Loading, Time, type Tone } from "../../ui/basics";
import { VirtualList } from "../../ui/virtual";
import type { Owner, ThreadHead } from ".";
import { DrawnPanel } from "./drawn";
import { type Item, type LiveItem, useFeed } from "./feed";
import { useRunStream } from "./run_stream";
import { RunsPanel } from "./runs";
import { StatePanel } from "./state";
import { TracesPanel } from "./traces";

const PANELS = ["state", "runs", "traces"] as const;

interface Props {
  owner: Owner;
  id: string;
  /** null until it is read. */
  head: ThreadHead | null;
  isMissing: boolean;
}

export function Thread({ owner, id, head, isMissing }: Props) {
  const { t } = useWords();
  const address = useAddress();
  const may = useMay();
  const turn = Number(address.get("turn")) || null;
  const feed = useFeed(owner, id, turn);
  const run = head?.newest_run ?? null;
  // The messages of a run that is over are in the timeline. One that was seen running is followed to its end.
  const [followed, setFollowed] = useState<string | null>(null);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  useEffect(() => {
    if (run?.status === "running" && run.run_id !== followed) {
      setFollowed(run.run_id);
      setOutcome(null);
    }
  }, [run?.run_id, run?.status]);
  const [stateRound, setStateRound] = useState(0);
  const stream = useRunStream(owner, followed, (event, cursor) => {
    feed.receive(event, cursor);
    if (event.type.startsWith("STATE_")) setStateRound((last) => last + 1);
    if (event.type === "RUN_ERROR") setOutcome({ status: "failed", error: event.message });
    if (event.type === "RUN_FINISHED") setOutcome({ status: finished(event.outcome), error: null });
  });
  const lastSequence = head?.last_sequence ?? null;
  useEffect(() => {
    if (lastSequence === null) return;
    feed.refresh();
    setStateRound((last) => last + 1);
  }, [lastSequence]);
  // A link to a turn beyond those that are here.
  const isBeyond = turn !== null && feed.later !== undefined && !feed.items.some((each) => (sequenceOf(each) ?? 0) >= turn);
  useEffect(() => {
    if (isBeyond) feed.catchUp();
  }, [isBeyond]);
  const panel = address.get("panel") === "drawn" && turn ? "drawn" : (PANELS.find((each) => each === address.get("panel")) ?? "state");
  const isLive = run?.status === "running" && run.run_id === followed && outcome === null;
  const cancel = useAction((api: Api) =>
    api.post(`api/runs/${encodeURIComponent(run?.run_id ?? "")}/cancel`, undefined, {
      query: { app_name: owner.app, user_id: owner.user },
    }),
  );
  const isNew = isMissing && address.get("new") !== null;
  if (isMissing && !isNew) {
    return (
      <div class="thread panel">
        <Empty title={t.conversation.missing}>{t.conversation.missingNote}</Empty>
      </div>
    );
  }
  return (
    <>
      <section class="thread panel" aria-labelledby="thread-title">
        <header class="panel-head thread-head">
          <Link class="back" to={linkTo("conversation", { ...owner })} aria-label={t.conversation.threads}>
            ‹
          </Link>
          <h2 id="thread-title" dir="auto">
            {id}
          </h2>
          <div class="aside">
            <RunStatus run={run} outcome={outcome} isFollowed={run?.run_id === followed} isConnected={stream.isConnected} />
            {isLive && may("append") && (
              <Button small kind="danger" disabled={cancel.busy} onClick={cancel.run}>
                {t.conversation.cancelRun}
              </Button>
            )}
          </div>
        </header>
        {cancel.error && <ErrorBox error={cancel.error} />}
        {feed.error && !feed.isReady && feed.error.kind !== "missing" && <ErrorBox error={feed.error} />}
        {!feed.isReady && !feed.error && <Loading />}
        {feed.isReady && feed.items.length === 0 && <Empty title={t.conversation.noMessages} />}
        <VirtualList
          id="timeline"
          class="timeline"
          role="log"
          label={t.conversation.log}
          rows={feed.items}
          keyOf={(item) => item.id}
          estimate={84}
          atEnd
          target={turn === null ? null : (feed.items.find((each) => sequenceOf(each) === turn)?.id ?? null)}
          nearEdge={feed.hasEarlier ? feed.earlier : undefined}
          nearEnd={feed.later}
          busy={feed.isReading || !feed.isReady}
          render={(item) => <ItemView owner={owner} thread={id} item={item} chosen={turn} />}
        />
        {may("append") && <Composer owner={owner} thread={id} isLive={isLive} sent={feed.catchUp} />}
      </section>
      <aside class="side-panel panel" aria-label={t.conversation.beside}>
        <nav class="tabs" aria-label={t.conversation.beside}>
          {PANELS.map((each) => (
            <Link key={each} to={address.with({ panel: each, turn: null, run: null, trace: null })} aria-current={panel === each ? "page" : undefined}>
              {t.conversation.panels[each]}
            </Link>
          ))}
          {panel === "drawn" && (
            <Link to={location.search} aria-current="page">
              {t.conversation.panels.drawn}
            </Link>
          )}
        </nav>
        <div class="side-body">
          {head === null && !isNew && <Loading />}
          {head && panel === "state" && <StatePanel owner={owner} thread={id} round={stateRound} />}
          {head && panel === "runs" && <RunsPanel owner={owner} thread={id} newest={run} followed={followed} stream={stream} />}
          {head && panel === "traces" && <TracesPanel owner={owner} thread={id} />}
          {head && panel === "drawn" && turn !== null && <DrawnPanel owner={owner} thread={id} turn={turn} />}
        </div>
      </aside>
    </>
  );
}

type Run = NonNullable<ThreadHead["newest_run"]>;
type Status = "completed" | "failed" | "cancelled" | "waiting" | "running" | "cut";

interface Outcome {
  status: Status;
  error: string | null;
}

function finished(outcome: { type: string } | undefined): Status {
  if (outcome?.type === "cancelled") return "cancelled";
  return outcome?.type === "interrupt" ? "waiting" : "completed";
}

const STATUS_TONES: Record<Status, Tone> = {
  running: "live",
  completed: "good",
  failed: "bad",
  cancelled: "warn",
  waiting: "warn",
  cut: "warn",
};

function RunStatus({ run, outcome, isFollowed, isConnected }: { run: Run | null; outcome: Outcome | null; isFollowed: boolean; isConnected: boolean }) {
  const { t } = useWords();
  const isEnded = run !== null && run.status !== "running";
  const shown: Outcome | null =
    isFollowed && outcome && !(isEnded && run.status !== "completed")
      ? outcome
      : run === null
        ? null
        : { status: run.status === "running" && isFollowed && !isConnected ? "cut" : (run.status as Status), error: run.error };
  return (
    <p id="run-status" role="status">
      {shown ? (
        <Badge tone={STATUS_TONES[shown.status]}>
          {t.conversation.run[shown.status]}
          {shown.error ? `: ${shown.error}` : ""}
        </Badge>
      ) : (
        <span class="note">{t.conversation.noRun}</span>
      )}
    </p>
  );
}

function sequenceOf(item: Item | LiveItem): number | null {
  return "sequenceNumber" in item ? item.sequenceNumber : null;
}

interface ItemProps {
  owner: Owner;
  thread: string;
  item: Item | LiveItem;
  chosen: number | null;
}

function ItemView({ owner, thread, item, chosen }: ItemProps) {
  const { t } = useWords();
  const sequence = sequenceOf(item);
  const isOpen = "live" in item && !item.ended;
  return (
    <article class={`item ${item.type}${isOpen ? " open" : ""}${sequence !== null && sequence === chosen ? " chosen" : ""}`}>
      <header class="item-head note">
        <strong>{t.conversation.types[item.type]}</strong>
        {"toolName" in item && <code dir="auto">{item.toolName}</code>}
        {"isPartial" in item && item.isPartial && <span class="failed">{t.conversation.partial}</span>}
        {"isError" in item && item.isError && <span class="failed">{t.conversation.failed}</span>}
        {"live" in item ? <span class="now">{t.common.now}</span> : <Time value={item.timestamp} />}
        {sequence !== null && (item.type === "user_message" || item.type === "assistant_message") && (
          <Link
            class="drawn-link"
            to={linkTo("conversation", { ...owner, thread, turn: sequence, panel: "drawn" })}
            aria-label={t.conversation.drawnFrom(sequence)}
          >
            #{sequence}
          </Link>
        )}
      </header>
      <ItemBody item={item} />
    </article>
  );
}

function ItemBody({ item }: { item: Item | LiveItem }): ComponentChildren {
  if (item.type === "tool_call") return <Folded text={json(item.toolInput)} />;
  if (item.type === "tool_result") {
    return <Folded text={typeof item.toolOutput === "string" ? item.toolOutput : json(item.toolOutput)} />;
  }
  const parts = "parts" in item ? (item.parts ?? []) : [];
  return (
    <>
      <p class="text" dir="auto">
        {item.content}
      </p>
      {parts.map((part, index) => (
        // Never loaded from here: an address may belong to anyone.
        <p key={index} class="note" dir="auto">
          {typeof part.text === "string" ? part.text : `(${String(part.type)})`}
        </p>
      ))}
    </>
  );
}

interface ComposerProps {
  owner: Owner;
  thread: string;
  isLive: boolean;
  sent: () => void;
}

/** Says something to an agent that this server runs. */
function Composer({ owner, thread, isLive, sent }: ComposerProps) {
  const { t } = useWords();
  const agents = useLoad(
    (api, signal) => api.get<Schemas["AgentListView"]>("api/agents", { app_name: owner.app, user_id: owner.user }, signal),
    ["agents", owner],
  );
  const names = agents.data?.agents.map((each) => each.name) ?? [];
  const [chosen, setChosen] = useState<string | null>(null);
  const agent = chosen ?? (names.includes("default") ? "default" : (names[0] ?? null));
  const [text, setText] = useState("");
  // The same message again has the same ids: nothing is said twice.
  const ids = useRef({ run: "", message: "" });
  const send = useAction(
    (api: Api) => {
      if (!ids.current.run) ids.current = { run: newId(), message: newId() };
      return api.startRun(owner, agent ?? "default", {
        threadId: thread,
        runId: ids.current.run,
        state: {},
        messages: [{ id: ids.current.message, role: "user", content: text.trim() }],
        tools: [],
        context: [],
        forwardedProps: {},
      });
    },
    () => {
      ids.current = { run: "", message: "" };
      // What was typed since stays.
      setText((now) => (now === text ? "" : now));
      sent();
    },
  );
  if (names.length === 0) return null;
  const submit = () => {
    if (text.trim() && !send.busy) send.run();
  };
  return (
    <form
      class="composer"
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {send.error && <ErrorBox error={send.error} />}
      <label>
        <span class="hidden-text">{t.conversation.message}</span>
        <textarea
          rows={2}
          dir="auto"
          placeholder={t.conversation.message}
          value={text}
          onInput={(event) => {
            ids.current = { run: "", message: "" };
            setText(event.currentTarget.value);
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
              event.preventDefault();
              submit();
            }
          }}
        />
      </label>
      <div class="composer-foot">
        {names.length > 1 && (
          <label>
            <span class="hidden-text">{t.conversation.agent}</span>
            <select value={agent ?? ""} onChange={(event) => setChosen(event.currentTarget.value)}>
              {names.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
        )}
        <span class="note">{isLive ? t.conversation.liveNote : t.conversation.sendNote}</span>
        <Button type="submit" kind="primary" disabled={send.busy || text.trim() === ""}>
          {t.conversation.send}
        </Button>
      </div>
    </form>
  );
}

/** Open a conversation that does not exist yet; its first message creates it. */
export function newConversation(owner: Owner): void {
  go(linkTo("conversation", { ...owner, thread: `console-${newId().slice(0, 8)}`, new: 1 }));
}
