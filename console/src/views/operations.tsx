// What the installation does: roles, queues, breakers, what failed; what the last day and week brought and cost; what the
// autonomic layer decided; keys.

import type { ComponentChildren } from "preact";

import type { Schemas } from "../core/api";
import { useLoad, usePages } from "../core/hooks";
import { costOf, type Prices } from "../core/prices";
import { Link, linkTo, useAddress } from "../core/router";
import { useMay } from "../core/session";
import { useWords } from "../i18n";
import { Badge, Empty, json, Loaded, Panel, Stat, Stats, Tabs, Time, type Tone, ViewHead } from "../ui/basics";
import { Bars, Columns } from "../ui/charts";
import { Table } from "../ui/table";
import { ListEnd } from "./start";

type Overview = Schemas["OverviewView"];
type Activity = Schemas["ActivityView"];

const TABS = ["now", "activity", "autonomic", "keys"] as const;
const EVERY_MS = 5000;
const BREAKERS: Record<string, Tone> = { closed: "good", open: "bad", half_open: "warn" };

export function Operations() {
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const tabs = TABS.filter((each) => each !== "keys" || may("admin"));
  const tab = tabs.find((each) => each === address.get("tab")) ?? "now";
  return (
    <>
      <ViewHead title={t.operations.title} lead={t.operations.lead} />
      <Tabs
        label={t.operations.title}
        items={tabs.map((each) => ({ to: linkTo("operations", { tab: each }), text: t.operations.tabs[each], current: each === tab }))}
      />
      {tab === "now" && <Now />}
      {tab === "activity" && <ActivityPanel />}
      {tab === "autonomic" && <Autonomic />}
      {tab === "keys" && <Keys />}
    </>
  );
}

function useSpan(): (seconds: number) => string {
  const { t, number } = useWords();
  return (seconds) => {
    if (seconds < 90) return t.operations.seconds(number(seconds));
    if (seconds < 5400) return t.operations.minutes(number(seconds / 60));
    return seconds < 172_800 ? t.operations.hours(number(seconds / 3600)) : t.operations.days(number(seconds / 86_400));
  };
}

function Now() {
  const { t, number } = useWords();
  const span = useSpan();
  const overview = useLoad((api, signal) => api.get<Overview>("api/installation/overview", {}, signal), ["overview"], { everyMs: EVERY_MS });
  return (
    <Loaded of={overview}>
      {(found) => {
        const waiting = found.queues.reduce((sum, each) => sum + each.waiting, 0);
        const failed = found.queues.reduce((sum, each) => sum + each.failed, 0);
        const open = found.breakers.filter((each) => each.state !== "closed");
        const lag = Math.max(0, ...found.lag.map((each) => each.oldest_seconds));
        return (
          <>
            <Stats>
              <Stat
                label={t.operations.roles}
                value={number(found.processes.length)}
                note={found.missing_roles.length > 0 ? <Badge tone="warn">{t.operations.missing(found.missing_roles.join(", "))}</Badge> : <Badge tone="good">{t.operations.allRun}</Badge>}
              />
              <Stat label={t.operations.waiting} value={number(waiting)} />
              <Stat label={t.operations.failed} value={number(failed)} note={failed > 0 && <Badge tone="bad">{t.operations.look}</Badge>} />
              <Stat label={t.operations.lag} value={lag > 0 ? span(lag) : t.common.none} />
              <Stat label={t.operations.breakers} value={open.length > 0 ? number(open.length) : t.common.none} note={open.length > 0 && <Badge tone="bad">{t.operations.open}</Badge>} />
              <Stat label={t.operations.webhooks} value={found.oldest_webhook_seconds > 0 ? span(found.oldest_webhook_seconds) : t.common.none} />
            </Stats>
            {found.failed_jobs.length > 0 && <FailedJobs jobs={found.failed_jobs} />}
            <div class="columns even">
              <Panel title={t.operations.roles} flush>
                <Processes of={found} />
              </Panel>
              <div>
                <Panel title={t.operations.queues} flush>
                  <Queues of={found} />
                </Panel>
                <Panel title={t.operations.models}>
                  <Models of={found} />
                </Panel>
              </div>
            </div>
          </>
        );
      }}
    </Loaded>
  );
}

function FailedJobs({ jobs }: { jobs: Overview["failed_jobs"] }) {
  const { t } = useWords();
  return (
    <Panel title={t.operations.failedJobs} flush class="spaced">
      <Table
        id="failed-jobs"
        rows={jobs}
        keyOf={(job) => job.id}
        columns={[
          { title: t.operations.why, cell: (job) => <Badge tone="bad">{job.error_code ?? t.common.unknown}</Badge> },
          {
            title: t.consolidation.job,
            cell: (job) => (
              <Link class="name-link" to={linkTo("consolidation", { app: job.app_name, user: job.user_id, job: job.id })}>
                {t.consolidation.types[job.job_type as keyof typeof t.consolidation.types] ?? job.job_type}
              </Link>
            ),
          },
          { title: t.operations.whose, isText: true, cell: (job) => `${job.app_name} / ${job.user_id} / ${job.session_id}` },
          { title: t.operations.when, cell: (job) => job.completed_at && <Time value={job.completed_at} relative /> },
        ]}
      />
    </Panel>
  );
}

function Processes({ of }: { of: Overview }) {
  const { t } = useWords();
  const span = useSpan();
  if (of.processes.length === 0) return <Empty title={t.operations.noProcesses}>{t.operations.noProcessesNote}</Empty>;
  return (
    <Table
      id="processes"
      rows={of.processes}
      keyOf={(each) => `${each.host} ${each.port}`}
      columns={[
        { title: t.operations.role, cell: (each) => each.role },
        { title: t.operations.process, cell: (each) => <code>{`${each.host}:${each.pid}`}</code> },
        { title: t.operations.up, isNumber: true, cell: (each) => span(each.up_seconds) },
        { title: t.operations.seen, isNumber: true, cell: (each) => span(each.seen_seconds) },
      ]}
    />
  );
}

function Queues({ of }: { of: Overview }) {
  const { t, number } = useWords();
  const span = useSpan();
  if (of.queues.length === 0) return <Empty title={t.operations.emptyQueues} />;
  return (
    <Table
      id="queues"
      rows={of.queues}
      keyOf={(each) => each.queue}
      columns={[
        { title: t.operations.queue, cell: (each) => each.queue },
        { title: t.operations.waiting, isNumber: true, cell: (each) => number(each.waiting) },
        { title: t.operations.running, isNumber: true, cell: (each) => number(each.running) },
        { title: t.operations.failed, isNumber: true, cell: (each) => (each.failed > 0 ? <Badge tone="bad">{each.failed}</Badge> : 0) },
        { title: t.operations.oldest, isNumber: true, cell: (each) => (each.oldest_seconds === null ? "" : span(each.oldest_seconds)) },
      ]}
    />
  );
}

function Models({ of }: { of: Overview }) {
  const { t, number } = useWords();
  const span = useSpan();
  const blocked = of.limits.filter((each) => each.blocked_seconds > 0);
  return (
    <dl class="pairs">
      {of.lag.map((each) => (
        <Pair key={each.stage} name={t.operations.lagOf(each.stage)}>
          {t.operations.lagText(number(each.events), number(each.sessions), span(each.oldest_seconds))}
        </Pair>
      ))}
      {of.lag.length === 0 && <Pair name={t.operations.lag}>{t.operations.noLag}</Pair>}
      {of.breakers.map((each) => (
        <Pair key={each.name} name={each.name}>
          <Badge tone={BREAKERS[each.state] ?? "plain"}>{t.operations.breakerStates[each.state as keyof typeof t.operations.breakerStates] ?? each.state}</Badge>{" "}
          {each.state !== "closed" && each.reason} {each.probe_seconds !== null && t.operations.probe(span(each.probe_seconds))}
        </Pair>
      ))}
      {of.breakers.length === 0 && <Pair name={t.operations.breakers}>{t.operations.noBreakers}</Pair>}
      {blocked.map((each) => (
        <Pair key={each.name} name={each.name}>
          {t.operations.blocked(span(each.blocked_seconds))} {each.reason}
        </Pair>
      ))}
      {of.refused_texts.map((each) => (
        <Pair key={each.model} name={each.model}>
          {t.operations.refused(number(each.texts))}
        </Pair>
      ))}
    </dl>
  );
}

function Pair({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </>
  );
}

function ActivityPanel() {
  const { t } = useWords();
  const activity = useLoad((api, signal) => api.get<Activity>("api/installation/activity", { hours: 24, days: 7 }, signal), ["activity"], { everyMs: 12 * EVERY_MS });
  return (
    <Loaded of={activity}>
      {(found) => (
        <>
          <div class="columns thirds">
            <Hourly title={t.operations.turnsByHour} hours={found.hours} value={(each) => each.turns} />
            <Hourly title={t.operations.jobsByHour} hours={found.hours} value={(each) => each.jobs_completed} bad={(each) => each.jobs_failed} />
            <Hourly title={t.operations.callsByHour} hours={found.hours} value={(each) => each.tool_calls - each.tool_calls_failed} bad={(each) => each.tool_calls_failed} />
          </div>
          <Costs days={found.days} prices={found.prices} />
        </>
      )}
    </Loaded>
  );
}

type Hour = Activity["hours"][number];

function Hourly({ title, hours, value, bad }: { title: string; hours: readonly Hour[]; value: (hour: Hour) => number; bad?: (hour: Hour) => number }) {
  const { t, number, clock } = useWords();
  const total = hours.reduce((sum, each) => sum + value(each), 0);
  const failed = bad ? hours.reduce((sum, each) => sum + bad(each), 0) : 0;
  return (
    <Panel title={title} aside={t.operations.lastDay}>
      <p>
        <span class="figure">{number(total)}</span> {failed > 0 && <Badge tone="bad">{t.operations.failedCount(number(failed))}</Badge>}
      </p>
      <Columns
        label={`${title}: ${number(total)}`}
        columns={hours.map((each) => ({ name: clock(each.start), value: value(each), bad: bad?.(each) ?? 0 }))}
      />
      <p class="axis-line note">
        <span>{hours[0] && clock(hours[0].start)}</span>
        <span>{t.common.now}</span>
      </p>
    </Panel>
  );
}

/** What a day's tokens cost; the first model without a known price is named. */
function DayCost({ usage, prices }: { usage: Activity["days"][number]["usage"]; prices: Prices }) {
  const { t, money } = useWords();
  if (usage.length === 0) return <>–</>;
  let sum = 0;
  for (const each of usage) {
    const cost = costOf(prices, each.model, each.prompt_tokens, each.output_tokens);
    if (cost === null) return <span class="note">{t.conversation.noPrice(each.model ?? t.common.unknown)}</span>;
    sum += cost;
  }
  return <>{money(sum, prices.currency)}</>;
}

function Costs({ days, prices }: { days: Activity["days"]; prices: Prices }) {
  const { t, number, date } = useWords();
  if (days.length === 0) return <Empty title={t.operations.noCosts}>{t.operations.noCostsNote}</Empty>;
  const apps = [...new Set(days.map((each) => each.app_name))];
  const tokensOf = (rows: Activity["days"]) => rows.reduce((sum, each) => sum + each.prompt_tokens + each.output_tokens, 0);
  return (
    <div class="columns spaced">
      <Panel title={t.operations.costs} aside={t.operations.lastWeek} flush>
        <Table
          id="costs"
          rows={days}
          keyOf={(each) => `${each.day} ${each.app_name}`}
          columns={[
            { title: t.operations.day, cell: (each) => date(`${each.day.slice(0, 10)}T12:00:00`) },
            { title: t.start.app, isText: true, cell: (each) => each.app_name },
            { title: t.operations.jobs, isNumber: true, cell: (each) => number(each.jobs) },
            { title: t.operations.calls, isNumber: true, cell: (each) => number(each.generate_calls + each.embed_calls) },
            { title: t.operations.tokensIn, isNumber: true, cell: (each) => number(each.prompt_tokens) },
            { title: t.operations.tokensOut, isNumber: true, cell: (each) => number(each.output_tokens) },
            { title: t.conversation.cost, isNumber: true, cell: (each) => <DayCost usage={each.usage} prices={prices} /> },
          ]}
        />
      </Panel>
      <Panel title={t.operations.tokensByApp} aside={t.operations.lastWeek}>
        <Bars
          label={t.operations.tokensByApp}
          bars={apps.map((app) => {
            const value = tokensOf(days.filter((each) => each.app_name === app));
            return { name: app, value, text: number(value) };
          })}
        />
      </Panel>
    </div>
  );
}

/** The record of the autonomic layer, as far as this page reads it. */
interface PulseStatus {
  scope: { scope: string; holder: string | null; ticks: number; last_tick_at: string | null; is_ticking: boolean };
  vitals: { sense: string; machine: string; at: string; data: unknown }[];
  decisions: { id: number; at: string; rule: string; effect: string; survival: boolean; why: Record<string, unknown>; end: string; code: string | null; ended_at: string | null }[];
  ticks: { at: string; ticks: number; ms: number; decided: [string, string][]; errors: number }[];
}

const ENDS: Record<string, Tone> = { acked: "good", failed: "bad", executing: "live", waiting: "warn" };

function Autonomic() {
  const { t } = useWords();
  const overview = useLoad((api, signal) => api.get<Overview>("api/installation/overview", {}, signal), ["overview"]);
  return (
    <Loaded of={overview}>
      {({ pulse_scopes: scopes }) =>
        scopes.length === 0 ? (
          <Empty title={t.operations.noPulse}>{t.operations.noPulseNote}</Empty>
        ) : (
          <>
            {scopes.map((scope) => (
              <PulseScope key={scope} scope={scope} />
            ))}
          </>
        )
      }
    </Loaded>
  );
}

function PulseScope({ scope }: { scope: string }) {
  const { t, number } = useWords();
  const status = useLoad((api, signal) => api.get<PulseStatus>("api/pulse/status", { scope }, signal), ["pulse", scope], { everyMs: EVERY_MS });
  return (
    <Loaded of={status}>
      {(found) => (
        <>
          <Stats>
            <Stat
              label={t.operations.layer}
              value={found.scope.is_ticking ? t.operations.ticking : t.operations.still}
              note={<Badge tone={found.scope.is_ticking ? "live" : "warn"}>{found.scope.scope}</Badge>}
            />
            <Stat label={t.operations.ticks} value={number(found.scope.ticks)} />
            <Stat label={t.operations.lastTick} value={found.scope.last_tick_at ? <Time value={found.scope.last_tick_at} relative /> : t.common.none} />
            <Stat label={t.operations.leader} value={<span class="small-figure">{found.scope.holder ?? t.common.none}</span>} />
          </Stats>
          <Panel title={t.operations.decisions} flush>
            {found.decisions.length === 0 ? (
              <Empty title={t.operations.noDecisions} />
            ) : (
              <Table
                id="decisions"
                rows={found.decisions}
                keyOf={(each) => each.id}
                columns={[
                  {
                    title: t.operations.rule,
                    cell: (each) => (
                      <>
                        {each.rule} {each.survival && <Badge tone="warn">{t.operations.survival}</Badge>}
                      </>
                    ),
                  },
                  { title: t.operations.effect, cell: (each) => <code>{each.effect}</code> },
                  { title: t.operations.why, cell: (each) => <pre>{json(each.why)}</pre> },
                  {
                    title: t.operations.end,
                    cell: (each) => (
                      <>
                        <Badge tone={ENDS[each.end] ?? "plain"}>{t.operations.ends[each.end as keyof typeof t.operations.ends] ?? each.end}</Badge> {each.code}
                      </>
                    ),
                  },
                  { title: t.operations.when, cell: (each) => <Time value={each.at} relative /> },
                ]}
              />
            )}
          </Panel>
          <div class="columns even spaced">
            <Panel title={t.operations.lastTicks} flush>
              <Table
                rows={found.ticks}
                keyOf={(each) => each.ticks}
                columns={[
                  { cell: (each) => `#${each.ticks}` },
                  { cell: (each) => each.decided.map(([rule]) => rule).join(", ") || <span class="note">{t.common.none}</span> },
                  { isNumber: true, cell: (each) => `${number(each.ms, 1)} ms` },
                  { cell: (each) => <Time value={each.at} relative /> },
                ]}
              />
            </Panel>
            <Panel title={t.operations.vitals} flush>
              <Table
                rows={found.vitals}
                keyOf={(each) => `${each.sense} ${each.machine}`}
                columns={[
                  {
                    cell: (each) => (
                      <>
                        {each.sense}
                        <div class="note">{each.machine}</div>
                      </>
                    ),
                  },
                  { cell: (each) => <pre>{json(each.data)}</pre> },
                ]}
              />
            </Panel>
          </div>
        </>
      )}
    </Loaded>
  );
}

function Keys() {
  const { t } = useWords();
  const keys = usePages(
    (api, cursor, signal) => api.get<Schemas["KeyPageView"]>("api/installation/keys", { cursor }, signal),
    (page) => page.keys,
    ["keys"],
  );
  return (
    <Panel title={t.operations.tabs.keys} flush>
      <Table
        id="keys"
        rows={keys.rows}
        keyOf={(each) => each.id}
        columns={[
          {
            title: t.operations.key,
            cell: (each) => (
              <>
                <code>{each.id}</code>
                <div class="note" dir="auto">
                  {each.name}
                </div>
              </>
            ),
          },
          { title: t.operations.roles, cell: (each) => each.roles.join(", ") },
          {
            title: t.operations.userRoles,
            cell: ({ user_roles, user_id }) => {
              if (user_roles?.length) return user_roles.join(", ");
              // A key of one user whose roles were not named may name none.
              return <span class="note">{user_roles === null && user_id === null ? t.operations.anyRole : t.operations.noRole}</span>;
            },
          },
          {
            title: t.operations.boundTo,
            isText: true,
            cell: (each) => (each.app_name === null ? t.operations.everyApp : [each.app_name, each.user_id].filter(Boolean).join(" / ")),
          },
          {
            title: t.operations.lastUsed,
            cell: (each) => (each.last_used_at ? <Time value={each.last_used_at} relative /> : <span class="note">{t.operations.never}</span>),
          },
          {
            title: t.operations.state,
            cell: (each) =>
              each.revoked_at ? (
                <Badge tone="bad">{t.operations.revoked}</Badge>
              ) : each.expires_at !== null && Date.parse(each.expires_at) < Date.now() ? (
                <Badge tone="warn">{t.operations.expired}</Badge>
              ) : (
                <Badge tone="good">{t.operations.valid}</Badge>
              ),
          },
        ]}
      />
      <ListEnd pages={keys} isFiltered={false} empty={t.operations.noKeys} note={t.operations.noKeysNote} />
    </Panel>
  );
}
