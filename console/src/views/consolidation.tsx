// The jobs of a user: what each read and wrote, side by side; failed ones with the model's reply; a replay, compared
// before it is applied.

import { useEffect, useRef, useState } from "preact/hooks";

import { ApiError, type Schemas, SLOW_MS, userPath } from "../core/api";
import { noteFailure, useAction, useLoad, usePages } from "../core/hooks";
import { go, Link, linkTo, useAddress } from "../core/router";
import { useMay, useSession } from "../core/session";
import { useWords } from "../i18n";
import { Badge, Button, Dialog, Empty, ErrorBox, Field, Folded, Loaded, Panel, Tabs, Time, type Tone, valueText, ViewHead } from "../ui/basics";
import { Table } from "../ui/table";
import type { ViewProps } from "./registry";
import { linkToRow } from "./search";
import { ListEnd } from "./start";

type Job = Schemas["JobView"];
type Effects = Schemas["JobEffectsView"];
type Replay = Schemas["MemoryReplayView"];

const STATUSES = ["pending", "running", "completed", "failed", "cancelled"] as const;
const TONES: Record<Job["status"], Tone> = { pending: "warn", running: "live", completed: "good", failed: "bad", cancelled: "plain" };
const TABS = ["jobs", "replay"] as const;

export function Consolidation({ app, user }: ViewProps) {
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const tab = may("admin") ? (TABS.find((each) => each === address.get("tab")) ?? "jobs") : "jobs";
  return (
    <>
      <ViewHead title={t.consolidation.title} lead={t.consolidation.lead} />
      {may("admin") && (
        <Tabs
          label={t.consolidation.title}
          items={TABS.map((each) => ({
            to: linkTo("consolidation", { app, user, tab: each }),
            text: t.consolidation.tabs[each],
            current: each === tab,
          }))}
        />
      )}
      {tab === "replay" ? <ReplayPanel app={app} user={user} /> : <Jobs app={app} user={user} />}
    </>
  );
}

function Jobs({ app, user }: ViewProps) {
  const { t } = useWords();
  const address = useAddress();
  const status = STATUSES.find((each) => each === address.get("status")) ?? null;
  const chosen = address.get("job");
  const jobs = usePages(
    (api, cursor, signal) => api.get<Schemas["JobPageView"]>(userPath(app, user, "jobs"), { status, cursor }, signal),
    (page) => page.jobs,
    ["jobs", app, user, status],
  );
  return (
    <>
      {chosen && <JobDetail key={chosen} app={app} user={user} id={chosen} changed={jobs.reload} />}
      <Panel
        title={t.consolidation.tabs.jobs}
        aside={
          <label>
            <span class="hidden-text">{t.consolidation.status}</span>
            <select value={status ?? ""} onChange={(event) => go(address.with({ status: event.currentTarget.value }), { replace: true })}>
              <option value="">{t.consolidation.anyStatus}</option>
              {STATUSES.map((each) => (
                <option key={each} value={each}>
                  {t.consolidation.statuses[each]}
                </option>
              ))}
            </select>
          </label>
        }
        flush
      >
        <Table
          id="jobs"
          rows={jobs.rows}
          keyOf={(job) => job.id}
          columns={[
            {
              title: t.consolidation.job,
              cell: (job) => (
                <>
                  <Link class="name-link" to={address.with({ view: "consolidation", job: job.id })} aria-current={job.id === chosen ? "true" : undefined}>
                    {t.consolidation.types[job.job_type as keyof typeof t.consolidation.types] ?? job.job_type}
                  </Link>
                  <div class="note">
                    <code>{job.id.slice(-12)}</code>
                  </div>
                </>
              ),
            },
            { title: t.consolidation.status, cell: (job) => <Badge tone={TONES[job.status]}>{t.consolidation.statuses[job.status]}</Badge> },
            { title: t.consolidation.outcome, cell: (job) => <Outcome job={job} /> },
            { title: t.consolidation.attempts, isNumber: true, cell: (job) => job.attempts },
            { title: t.consolidation.enqueued, cell: (job) => job.created_at && <Time value={job.created_at} relative /> },
          ]}
        />
        <ListEnd pages={jobs} isFiltered={false} empty={status ? t.consolidation.noSuchJobs : t.consolidation.noJobs} />
      </Panel>
    </>
  );
}

/** What a job brought, in a line. */
function Outcome({ job }: { job: Job }) {
  const { t } = useWords();
  if (job.error_code !== null || job.error !== null) {
    return (
      <span class={job.status === "failed" ? "failed" : "note"} dir="auto">
        <code>{job.error_code}</code> {job.error?.split("\n", 1)[0]?.slice(0, 160)}
      </span>
    );
  }
  const { summary, facts, insights, skipped, message } = job.result as {
    summary?: unknown;
    facts?: unknown[];
    insights?: unknown[];
    skipped?: unknown[];
    message?: string;
  };
  const parts = [
    summary ? t.consolidation.oneSummary : null,
    facts ? t.consolidation.facts(facts.length) : null,
    insights ? t.consolidation.insights(insights.length) : null,
    skipped ? t.consolidation.skipped(skipped.length) : null,
    message ?? null,
  ];
  return <>{parts.filter(Boolean).join(", ")}</>;
}

function JobDetail({ app, user, id, changed }: ViewProps & { id: string; changed: () => void }) {
  const { t, number } = useWords();
  const may = useMay();
  const address = useAddress();
  const job = useLoad((api, signal) => api.get<Job>(userPath(app, user, "jobs", id), {}, signal), ["job", app, user, id]);
  const effects = useLoad((api, signal) => api.get<Effects>(userPath(app, user, "jobs", id, "effects"), {}, signal), ["effects", app, user, id]);
  const done = () => {
    job.reload();
    effects.reload();
    changed();
  };
  const retry = useAction((api) => api.post<Job>(userPath(app, user, "jobs", id, "retry"), undefined), done);
  const cancel = useAction((api) => api.post<Job>(userPath(app, user, "jobs", id, "cancel"), undefined), done);
  return (
    <Panel
      title={t.consolidation.job}
      aside={
        <Button kind="quiet" small aria-label={t.common.close} onClick={() => go(address.with({ job: null }))}>
          ✕
        </Button>
      }
      class="job-detail"
      opened
    >
      <Loaded of={job}>
        {(found) => {
          const cost = found.result.cost as Record<string, number> | undefined;
          return (
            <>
              <p class="job-line">
                <Badge tone={TONES[found.status]}>{t.consolidation.statuses[found.status]}</Badge>{" "}
                {t.consolidation.types[found.job_type as keyof typeof t.consolidation.types] ?? found.job_type}
                {effects.data && (
                  <>
                    {" · "}
                    <Link dir="auto" to={linkTo("conversation", { app, user, thread: effects.data.session_id })}>
                      {effects.data.session_id}
                    </Link>
                  </>
                )}
                {found.completed_at && (
                  <span class="note">
                    {" "}
                    <Time value={found.completed_at} />
                  </span>
                )}
                {cost && (
                  <span class="note">
                    {" "}
                    · {t.consolidation.cost(number((cost.generate_calls ?? 0) + (cost.embed_calls ?? 0)), number((cost.prompt_tokens ?? 0) + (cost.output_tokens ?? 0)))}
                  </span>
                )}
              </p>
              {(found.error_code !== null || found.error !== null) && (
                <div class="job-error" role="note">
                  <h3>
                    {found.status === "failed" ? t.consolidation.failedBecause : t.consolidation.lastAttempt} <code>{found.error_code}</code>
                  </h3>
                  {found.error && <Folded text={found.error} />}
                  {found.raw_reply && (
                    <>
                      <h3>{t.consolidation.rawReply}</h3>
                      <Folded text={found.raw_reply} class="raw-reply" />
                    </>
                  )}
                </div>
              )}
              {may("admin") && (
                <p class="job-actions">
                  {(found.status === "failed" || found.status === "cancelled") && (
                    <Button kind="primary" disabled={retry.busy} onClick={retry.run}>
                      {t.consolidation.retry}
                    </Button>
                  )}
                  {(found.status === "pending" || found.status === "running") && (
                    <Button disabled={cancel.busy} onClick={cancel.run}>
                      {t.consolidation.cancelJob}
                    </Button>
                  )}
                </p>
              )}
              {retry.error && <ErrorBox error={retry.error} />}
              {cancel.error && <ErrorBox error={cancel.error} />}
            </>
          );
        }}
      </Loaded>
      <Loaded of={effects}>{(found) => <SideBySide app={app} user={user} effects={found} />}</Loaded>
    </Panel>
  );
}

function SideBySide({ app, user, effects }: ViewProps & { effects: Effects }) {
  const { t } = useWords();
  const [marked, setMarked] = useState<readonly number[]>([]);
  return (
    <div class="side-by-side">
      <section aria-label={t.consolidation.read}>
        <h3>
          {t.consolidation.read} <span class="note">{t.common.turns(effects.turn_count)}</span>
        </h3>
        {effects.turns.length === 0 && <Empty title={t.consolidation.readNothing} />}
        <ol class="read-turns">
          {effects.turns.map((turn) => (
            <li key={turn.id} class={marked.includes(turn.sequence_num) ? "marked" : ""}>
              <p class="note">
                <Link to={linkTo("conversation", { app, user, thread: effects.session_id, turn: turn.sequence_num })}>#{turn.sequence_num}</Link>{" "}
                <span dir="auto">{turn.author}</span>
              </p>
              <Folded text={turn.content} />
            </li>
          ))}
        </ol>
        {effects.turn_count > effects.turns.length && <p class="note">{t.consolidation.moreTurns(effects.turn_count - effects.turns.length)}</p>}
      </section>
      <section aria-label={t.consolidation.wrote}>
        <h3>
          {t.consolidation.wrote} <span class="note">{effects.written.length}</span>
        </h3>
        {effects.written.length === 0 && <Empty title={t.consolidation.wroteNothing} />}
        <ol class="written">
          {effects.written.map((each) => {
            const link = linkToRow(app, user, { source: each.source, id: each.id, session: null, turn: null });
            return (
              <li
                key={each.row_id}
                onPointerEnter={() => setMarked(each.source_seqs)}
                onPointerLeave={() => setMarked([])}
                onFocusIn={() => setMarked(each.source_seqs)}
                onFocusOut={() => setMarked([])}
              >
                <p class="note">
                  <Badge tone={each.source === "archived_memory" ? "plain" : "accent"}>{t.consolidation.sources[each.source]}</Badge> {each.kind}
                  {each.source_seqs.length > 0 && ` · ${t.consolidation.from(each.source_seqs.map((seq) => `#${seq}`).join(", "))}`}
                </p>
                <Folded text={each.content} />
                {link && (
                  <p>
                    <Link to={link}>{t.search.openMemory}</Link>
                  </p>
                )}
              </li>
            );
          })}
        </ol>
      </section>
    </div>
  );
}

const SIGNS: Record<Replay["changes"][number]["change"], string> = { added: "+", dropped: "−", kept: "=" };

function ReplayPanel({ app, user }: ViewProps) {
  const { t } = useWords();
  const session = useSession();
  const address = useAddress();
  const [name, setName] = useState(address.get("session") ?? "");
  // What was compared, and for which session (null: all): a change is applied to just that.
  const [compared, setCompared] = useState<{ session: string | null; report: Replay } | null>(null);
  const [asked, setAsked] = useState(0);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const [confirming, setConfirming] = useState(false);
  const leaving = useRef<AbortController | null>(null);
  useEffect(() => {
    const controller = new AbortController();
    leaving.current = controller;
    return () => controller.abort();
  }, []);
  const report = compared?.report ?? null;
  const run = async (sessionId: string | null, apply: boolean) => {
    const signal = leaving.current?.signal;
    setBusy(true);
    setAsked(0);
    setError(null);
    setConfirming(false);
    try {
      let slices = 0;
      for (;;) {
        // One slice a call: what was extracted is kept, whatever happens to the next one.
        const body = { session_id: sessionId, apply, slices: 1 };
        const found = await session.api.post<Replay>(userPath(app, user, "replays"), body, { signal, timeoutMs: SLOW_MS });
        // The view was left: what was extracted so far is kept on the server.
        if (signal?.aborted) return;
        slices += found.slices;
        setAsked(slices);
        if (found.is_complete) {
          setCompared({ session: sessionId, report: found });
          break;
        }
      }
    } catch (failure) {
      if (!signal?.aborted) setError(noteFailure(failure, session, { retries: false }));
    } finally {
      if (!signal?.aborted) setBusy(false);
    }
  };
  return (
    <>
      <Panel title={t.consolidation.replayTitle}>
        <p class="lead">{t.consolidation.replayLead}</p>
        <form
          class="open-form"
          onSubmit={(event) => {
            event.preventDefault();
            setCompared(null);
            void run(name.trim() || null, false);
          }}
        >
          <Field label={t.consolidation.replaySession} value={name} onValue={setName} maxLength={512} />
          <Button type="submit" kind="primary" disabled={busy}>
            {t.consolidation.compare}
          </Button>
        </form>
        {busy && (
          <p class="note" role="status">
            <span class="spinner" aria-hidden="true" /> {t.consolidation.asked(asked)}
          </p>
        )}
        {error && <ErrorBox error={error} />}
      </Panel>
      {report && (
        <Panel
          title={report.applied ? t.consolidation.applied : t.consolidation.diff}
          aside={
            !report.applied &&
            report.changes.some((each) => each.change !== "kept") && (
              <Button kind="danger" small disabled={busy} onClick={() => setConfirming(true)}>
                {t.consolidation.apply}
              </Button>
            )
          }
          flush
        >
          <Diff report={report} />
        </Panel>
      )}
      {confirming && compared && (
        <Dialog
          title={t.consolidation.apply}
          close={() => setConfirming(false)}
          footer={
            <>
              <Button onClick={() => setConfirming(false)}>{t.common.cancel}</Button>
              <Button kind="danger" onClick={() => void run(compared.session, true)}>
                {t.consolidation.apply}
              </Button>
            </>
          }
        >
          <p>{compared.session === null ? t.consolidation.applyToAll : t.consolidation.applyTo(compared.session)}</p>
          <p>{t.consolidation.applyNote}</p>
        </Dialog>
      )}
    </>
  );
}

function Diff({ report }: { report: Replay }) {
  const { t } = useWords();
  const [withKept, setKept] = useState(false);
  const count = (change: string) => report.changes.filter((each) => each.change === change).length;
  const shown = report.changes.filter((each) => withKept || each.change !== "kept");
  return (
    <>
      <p class="diff-head">
        {t.consolidation.changed(count("added"), count("dropped"), count("kept"))}
        <label class="check">
          <input type="checkbox" checked={withKept} onChange={(event) => setKept(event.currentTarget.checked)} />
          {t.consolidation.showKept}
        </label>
      </p>
      {shown.length === 0 && <Empty title={t.consolidation.noChange} />}
      <ul class="diff">
        {shown.map((each, index) => (
          <li key={index} class={each.change}>
            <span class="sign" aria-hidden="true">
              {SIGNS[each.change]}
            </span>
            <span class="hidden-text">{t.consolidation.changes[each.change]}</span>
            <Badge>{each.kind}</Badge>
            <Folded text={each.content} />
          </li>
        ))}
      </ul>
      {report.facts.length > 0 && (
        <Table
        rows={report.facts}
        keyOf={(each) => `${each.fact_type} ${each.key}`}
        columns={[
          { title: t.consolidation.fact, cell: (each) => <code dir="auto">{each.key}</code> },
          { title: t.consolidation.before, isText: true, cell: (each) => (each.before === null ? t.common.none : valueText(each.before)) },
          { title: t.consolidation.after, isText: true, cell: (each) => (each.after === null ? t.common.none : valueText(each.after)) },
        ]}
      />
      )}
    </>
  );
}
