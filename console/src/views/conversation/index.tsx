// Conversations: a user's threads, the chosen one with its live run, and what is beside it.

import { useEffect, useState } from "preact/hooks";

import type { Schemas } from "../../core/api";
import { useLoad, usePages, useSettled } from "../../core/hooks";
import { Link, linkTo, useAddress } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, Empty, ErrorBox, Field, Loading, Time, type Tone } from "../../ui/basics";
import type { ViewProps } from "../registry";
import { newConversation, Thread } from "./thread";

export type Owner = ViewProps;
export type ThreadHead = Schemas["ThreadView"];

const PAGE = 100;
const POLL_MS = 600;

export function Conversation({ app, user }: ViewProps) {
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const chosen = address.get("thread");
  const owner = { app, user };
  const [text, setText] = useState("");
  const contains = useSettled(text.trim());
  const named = { app_name: app, user_id: user };
  const list = useLoad(
    (api, signal) => api.get<Schemas["ThreadListView"]>("api/threads", { ...named, limit: PAGE, contains }, signal),
    ["threads", app, user, contains],
    { everyMs: POLL_MS },
  );
  const threads = list.data?.threads ?? [];
  const listed = threads.find((each) => each.thread_id === chosen) ?? null;
  // A thread outside of the list is read by its name.
  const isOutside = chosen !== null && list.data !== null && listed === null;
  const outside = useLoad(
    isOutside
      ? (api, signal) => api.get<Schemas["ThreadListView"]>("api/threads", { ...named, thread_id: chosen }, signal)
      : null,
    ["thread", app, user, isOutside ? chosen : null],
    { everyMs: POLL_MS },
  );
  const head = listed ?? outside.data?.threads[0] ?? null;
  const isMissing = isOutside && outside.data !== null && outside.data.threads.length === 0;
  return (
    <div class={`conversations${chosen ? " chosen" : ""}`}>
      <h1 class="hidden-text">{t.conversation.title}</h1>
      <nav class="threads panel" aria-label={t.conversation.threads}>
        <header class="panel-head">
          <Field label={t.conversation.find} hideLabel type="search" placeholder={t.conversation.find} value={text} onValue={setText} />
          {may("append") && (
            <Button small onClick={() => newConversation(owner)} aria-label={t.conversation.start} title={t.conversation.start}>
              +
            </Button>
          )}
        </header>
        <div class="thread-scroll">
          {list.error && !list.data && <ErrorBox error={list.error} retry={list.reload} />}
          {list.data === null && !list.error && <Loading />}
          {list.data && threads.length === 0 && (
            <Empty title={contains ? t.start.noMatch : t.conversation.noThreads}>{contains ? null : t.conversation.noThreadsNote}</Empty>
          )}
          <ThreadItems owner={owner} threads={threads} chosen={chosen} />
          {list.data?.next_cursor && <Older key={contains} owner={owner} contains={contains} known={threads} chosen={chosen} />}
        </div>
      </nav>
      {chosen === null ? (
        <div class="thread-empty panel">
          <Empty title={t.conversation.choose}>{t.conversation.chooseNote}</Empty>
        </div>
      ) : (
        <Thread key={chosen} owner={owner} id={chosen} head={head} isMissing={isMissing} />
      )}
    </div>
  );
}

const TONES: Record<string, Tone> = { running: "live", failed: "bad", cancelled: "warn" };

function ThreadItems({ owner: { app, user }, threads, chosen }: { owner: Owner; threads: ThreadHead[]; chosen: string | null }) {
  const { t } = useWords();
  return (
    <ul class="thread-items">
      {threads.map((each) => (
        <li key={each.thread_id}>
          <Link
            class="thread-link"
            to={linkTo("conversation", { app, user, thread: each.thread_id })}
            aria-current={each.thread_id === chosen ? "true" : undefined}
          >
            <span class="thread-name" dir="auto">
              {each.thread_id}
            </span>
            <span class="note">
              <Time value={each.updated_at} /> · {t.conversation.events(each.last_sequence)}
            </span>
            {each.newest_run && TONES[each.newest_run.status] && (
              <Badge tone={TONES[each.newest_run.status] ?? "plain"}>
                <span class={each.newest_run.status}>{t.conversation.statuses[each.newest_run.status]}</span>
              </Badge>
            )}
          </Link>
        </li>
      ))}
    </ul>
  );
}

interface OlderProps {
  owner: Owner;
  contains: string;
  known: ThreadHead[];
  chosen: string | null;
}

/** Threads after the first page, which are not polled. */
function Older({ owner, contains, known, chosen }: OlderProps) {
  const { t } = useWords();
  const [open, setOpen] = useState(false);
  const pages = usePages(
    open
      ? (api, cursor, signal) =>
          api.get<Schemas["ThreadListView"]>("api/threads", { app_name: owner.app, user_id: owner.user, limit: PAGE, contains, cursor }, signal)
      : null,
    (page) => page.threads,
    ["older", owner, contains],
  );
  const shown = new Set(known.map((each) => each.thread_id));
  useEffect(() => {
    // The first page is the one that is shown above.
    if (open && pages.rows.length === PAGE) pages.more();
  }, [open, pages.rows.length]);
  return (
    <>
      <ThreadItems owner={owner} threads={pages.rows.filter((each) => !shown.has(each.thread_id))} chosen={chosen} />
      {pages.error && <ErrorBox error={pages.error} retry={pages.retry} />}
      {open && pages.loading && <Loading />}
      {(!open || (pages.hasMore && !pages.loading)) && (
        <p class="state">
          <Button small onClick={() => (open ? pages.more() : setOpen(true))}>
            {t.conversation.olderThreads}
          </Button>
        </p>
      )}
    </>
  );
}
