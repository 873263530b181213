// The runs of a thread: each with its steps, its tool calls, its tokens, and its stream event by event.

import { path, type Schemas, userPath } from "../../core/api";
import { useLoad, usePages } from "../../core/hooks";
import { costOf } from "../../core/prices";
import { Link, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { Badge, Button, Empty, ErrorBox, Loading, Time, type Tone } from "../../ui/basics";
import { VirtualList } from "../../ui/virtual";
import type { Owner, ThreadHead } from ".";
import { type FollowedRun, type LoggedEvent, useRunStream } from "./run_stream";
import { tokensOf } from "./traces";

const TONES: Record<string, Tone> = { running: "live", completed: "good", failed: "bad", cancelled: "warn" };
const TEXT_MAX = 160;

interface Props {
  owner: Owner;
  thread: string;
  newest: ThreadHead["newest_run"];
  /** The run that the page follows, and its stream: it is not opened twice. */
  followed: string | null;
  stream: FollowedRun;
}

export function RunsPanel({ owner, thread, newest, followed, stream }: Props) {
  const { t } = useWords();
  const address = useAddress();
  const chosen = address.get("run") ?? newest?.run_id ?? null;
  const runs = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["RunListView"]>(
        `api/threads/${path(thread)}/runs`,
        { app_name: owner.app, user_id: owner.user, limit: 50, cursor },
        signal,
      ),
    (page) => page.runs.map((run) => ({ run, prices: page.prices })),
    ["runs", owner, thread, newest?.run_id, newest?.status],
  );
  if (!runs.loading && runs.rows.length === 0) {
    return runs.error ? <ErrorBox error={runs.error} retry={runs.reload} /> : <Empty title={t.conversation.noRun} />;
  }
  return (
    <div id="runs">
      <ul class="run-items">
        {runs.rows.map(({ run, prices }) => (
          <li key={run.run_id}>
            <Link to={address.with({ run: run.run_id })} aria-current={run.run_id === chosen ? "true" : undefined} dir="auto">
              {run.run_id}
            </Link>{" "}
            <Badge tone={TONES[run.status] ?? "plain"}>{t.conversation.statuses[run.status]}</Badge>
            <p class="note">
              <Time value={run.started_at} />
              {run.completed_at && ` · ${t.conversation.seconds((Date.parse(run.completed_at) - Date.parse(run.started_at)) / 1000)}`}
              {` · #${run.first_sequence_num}–${run.last_sequence_num}`}
            </p>
            {run.error && <p class="failed">{run.error}</p>}
            {run.run_id === chosen && (
              <RunDetail key={run.run_id} owner={owner} run={run} prices={prices} thread={thread} stream={run.run_id === followed ? stream : null} />
            )}
          </li>
        ))}
      </ul>
      {runs.hasMore && (
        <Button small onClick={runs.more}>
          {t.common.more}
        </Button>
      )}
    </div>
  );
}

interface Step {
  name: string;
  kind: "step" | "tool";
  from: number | null;
  to: number | null;
}

/** Read the steps and the tool calls of a run from its stream. */
function stepsOf(marks: FollowedRun["marks"]): Step[] {
  const steps: Step[] = [];
  const open = new Map<string, Step>();
  for (const event of marks) {
    const at = typeof event.timestamp === "number" ? event.timestamp : null;
    if (event.type === "STEP_STARTED" || event.type === "TOOL_CALL_START") {
      const isStep = event.type === "STEP_STARTED";
      const step: Step = { name: isStep ? event.stepName : event.toolCallName, kind: isStep ? "step" : "tool", from: at, to: null };
      steps.push(step);
      open.set(isStep ? `step ${event.stepName}` : event.toolCallId, step);
    } else if (event.type === "STEP_FINISHED" || event.type === "TOOL_CALL_RESULT") {
      const step = open.get(event.type === "STEP_FINISHED" ? `step ${event.stepName}` : event.toolCallId);
      if (step) step.to = at;
    }
  }
  return steps;
}

interface DetailProps {
  owner: Owner;
  run: Schemas["RunView"];
  prices: RunPrices;
  thread: string;
  stream: FollowedRun | null;
}

function RunDetail({ owner, run, prices, thread, stream }: DetailProps) {
  const { t, number } = useWords();
  const own = useRunStream(owner, stream === null ? run.run_id : null);
  const { events, marks, seen, problem } = stream ?? own;
  const steps = stepsOf(marks);
  const traces = useLoad(
    (api, signal) =>
      api.get<Schemas["TracePageView"]>(userPath(owner.app, owner.user, "traces"), { session_id: thread, limit: 100 }, signal),
    ["traces of runs", owner, thread, run.run_id, run.status],
  );
  const traceId = traces.data?.traces.find((each) => each.run_id === run.run_id)?.trace_id ?? null;
  const trace = useLoad(
    traceId === null ? null : (api, signal) => api.get<Schemas["TraceView"]>(userPath(owner.app, owner.user, "traces", traceId), {}, signal),
    ["trace", owner, traceId],
  );
  const usage = usageOf(marks);
  // What the run itself did not record may be in its trace.
  const tokens = trace.data && usage.length === 0 ? tokensOf(trace.data.spans) : null;
  const unread = [traces, ...(traceId === null ? [] : [trace])].find((each) => each.data === null);
  const isEnded = marks.some((each) => each.type === "RUN_FINISHED" || each.type === "RUN_ERROR");
  const address = useAddress();
  return (
    <div class="run-detail">
      {problem && <p class="note">{problem}</p>}
      {steps.length > 0 && (
        <ul class="steps" aria-label={t.conversation.steps}>
          {steps.map((step, index) => (
            <li key={index}>
              <Badge tone={step.kind === "tool" ? "accent" : "plain"}>{step.kind === "tool" ? t.conversation.tool : t.conversation.step}</Badge>{" "}
              <code dir="auto">{step.name}</code>{" "}
              <span class="note">
                {step.from !== null && step.to !== null ? t.conversation.milliseconds(number(step.to - step.from)) : null}
              </span>
            </li>
          ))}
        </ul>
      )}
      {tokens && tokens.input + tokens.output > 0 ? (
        <p class="note">{t.conversation.tokens(number(tokens.input), number(tokens.output))}</p>
      ) : usage.length > 0 ? (
        <Cost usage={usage} prices={prices} />
      ) : !isEnded ? null : unread?.error ? (
        <ErrorBox error={unread.error} retry={unread.reload} />
      ) : unread ? (
        <Loading />
      ) : (
        <p class="note">{t.conversation.noUsage}</p>
      )}
      {traceId && (
        <p>
          <Link to={address.with({ panel: "traces", trace: traceId, run: null })}>{t.conversation.openTrace}</Link>
        </p>
      )}
      <h3>
        {t.conversation.stream} <span class="note">{t.conversation.events(seen)}</span>
      </h3>
      <VirtualList
        id="frames"
        class="frames"
        role="log"
        label={t.conversation.streamLabel}
        rows={events}
        keyOf={(each) => String(each.number)}
        estimate={22}
        atEnd
        render={(each) => <EventLine of={each} />}
      />
    </div>
  );
}

/** null: the key may not see them. */
type RunPrices = Schemas["RunListView"]["prices"];

interface Usage {
  provider?: string | null;
  model?: string | null;
  inputTokens?: number | null;
  outputTokens?: number | null;
}

/** The tokens by model, which the last event of a run has. */
function usageOf(marks: FollowedRun["marks"]): Usage[] {
  const end = marks.find((each) => each.type === "RUN_FINISHED" || each.type === "RUN_ERROR") as { usage?: Usage[] } | undefined;
  return end?.usage ?? [];
}

/** Tokens, and what they cost by the configured prices; a price that is not known is not 0. */
function Cost({ usage, prices }: { usage: readonly Usage[]; prices: RunPrices }) {
  const { t, number, money } = useWords();
  const costs = usage.map((each) => prices && costOf(prices, each.model, each.inputTokens ?? 0, each.outputTokens ?? 0));
  const known = costs.filter((each) => each !== null);
  return (
    <dl class="pairs cost">
      {usage.map((each, index) => {
        const cost = costs[index];
        const model = each.model ?? t.common.unknown;
        return (
          <>
            <dt key={`${index} model`} dir="auto">
              {model}
            </dt>
            <dd key={index}>
              {t.conversation.tokens(number(each.inputTokens ?? 0), number(each.outputTokens ?? 0))}
              {" · "}
              {prices === null ? (
                <span class="note">{t.conversation.priceNotShown}</span>
              ) : cost === null || cost === undefined ? (
                <span class="note">{t.conversation.noPrice(model)}</span>
              ) : (
                money(cost, prices.currency)
              )}
            </dd>
          </>
        );
      })}
      {prices && known.length > 1 && known.length === costs.length && (
        <>
          <dt>{t.conversation.cost}</dt>
          <dd>
            {money(
              known.reduce((sum, each) => sum + each, 0),
              prices.currency,
            )}
          </dd>
        </>
      )}
    </dl>
  );
}

function EventLine({ of }: { of: LoggedEvent }) {
  const { type, ...rest } = of.event;
  const shown = JSON.stringify(rest);
  return (
    <p class="frame-line" title={`id ${of.cursor ?? ""}`}>
      <span class="note">{of.number}</span> <code class="type">{type}</code>{" "}
      <code class="rest">{shown.length > TEXT_MAX ? `${shown.slice(0, TEXT_MAX)}…` : shown}</code>
    </p>
  );
}
