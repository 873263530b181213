// What happens to an app by itself: which memories would go tonight, its webhooks, and its audit log.

import { appPath, type Schemas } from "../core/api";
import { useAction, usePages } from "../core/hooks";
import { Link, linkTo, useAddress } from "../core/router";
import { useWords } from "../i18n";
import { Badge, Button, ErrorBox, json, Panel, Tabs, Time, type Tone, ViewHead } from "../ui/basics";
import { type Column, Table } from "../ui/table";
import type { ViewProps } from "./registry";
import { ListEnd } from "./start";

type Endpoint = Schemas["EndpointView"];

const TABS = ["retention", "webhooks", "audit"] as const;
const DELIVERIES: Record<Schemas["DeliveryView"]["status"], Tone> = {
  waiting: "warn",
  parked: "warn",
  sending: "live",
  delivered: "good",
  failed: "bad",
  cancelled: "plain",
};

export function Upkeep({ app }: ViewProps) {
  const { t } = useWords();
  const address = useAddress();
  const tab = TABS.find((each) => each === address.get("tab")) ?? "retention";
  return (
    <>
      <ViewHead title={t.upkeep.title} lead={t.upkeep.lead(app)} />
      <Tabs
        label={t.upkeep.title}
        items={TABS.map((each) => ({ to: linkTo("upkeep", { app, tab: each }), text: t.upkeep.tabs[each], current: each === tab }))}
      />
      {tab === "retention" && <Retention app={app} />}
      {tab === "webhooks" && <Webhooks app={app} />}
      {tab === "audit" && <Audit app={app} />}
    </>
  );
}

const SPANS = [7, 30] as const;

/** What a clean-up would archive now, or what it will have archived some days from now. */
function Retention({ app }: { app: string }) {
  const { t } = useWords();
  const address = useAddress();
  const days = SPANS.find((each) => String(each) === address.get("days")) ?? 0;
  const tabs = [0, ...SPANS].map((each) => ({
    to: linkTo("upkeep", { app, days: each || null }),
    text: each === 0 ? t.upkeep.now : t.upkeep.within(each),
    current: each === days,
  }));
  return (
    <>
      <Tabs label={t.upkeep.when} items={tabs} />
      {days === 0 ? <DryRun app={app} /> : <Forecast key={days} app={app} days={days} />}
    </>
  );
}

/** Of a memory that will go, and whose it is. */
function useMemoryColumns(app: string): Column<{ id: string; user_id: string; memory_type: string; content: string }>[] {
  const { t } = useWords();
  return [
    {
      title: t.upkeep.memory,
      cell: (each) => (
        <>
          <Link dir="auto" class="clamped" to={linkTo("memory", { app, user: each.user_id, tab: "memories", id: each.id })}>
            {each.content}
          </Link>
          <span class="note">{each.memory_type}</span>
        </>
      ),
    },
    { title: t.start.user, isText: true, cell: (each) => each.user_id },
  ];
}

/** The policy of the app beside one that drops nothing: what they treat differently is what will go. */
function Forecast({ app, days }: { app: string; days: number }) {
  const { t, number } = useWords();
  const columns = useMemoryColumns(app);
  const going = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["ComparisonView"]>(
        appPath(app, "retention", "compare"),
        { threshold: 0, days, limit: 100, cursor },
        signal,
      ),
    (page) => page.differing.filter((each) => !each.one),
    ["forecast", app, days],
  );
  return (
    <Panel title={t.upkeep.goesWithin(days)} aside={t.upkeep.unlessUsed} flush>
      <Table
        id="going"
        rows={going.rows}
        keyOf={(each) => each.id}
        columns={[
          ...columns,
          { title: t.upkeep.strengthThen, isNumber: true, cell: (each) => number(each.one_score, 3) },
        ]}
      />
      <ListEnd pages={going} isFiltered={false} empty={t.upkeep.nothingGoes} note={t.upkeep.nothingGoesNote} />
    </Panel>
  );
}

function DryRun({ app }: { app: string }) {
  const { t, number } = useWords();
  const columns = useMemoryColumns(app);
  const weak = usePages(
    (api, cursor, signal) => api.get<Schemas["DryRunView"]>(appPath(app, "retention", "dry-run"), { cursor }, signal),
    (page) => page.memories,
    ["dry-run", app],
  );
  return (
    <Panel title={t.upkeep.tonight} aside={t.upkeep.nothingChanges} flush>
      <Table
        id="weak"
        rows={weak.rows}
        keyOf={(each) => each.id}
        columns={[
          ...columns,
          {
            title: t.upkeep.strength,
            isNumber: true,
            cell: (each) => (
              <>
                {number(each.score, 3)} <span class="note">&lt; {number(each.threshold, 3)}</span>
              </>
            ),
          },
          { title: t.upkeep.idle, isNumber: true, cell: (each) => t.operations.days(number(each.idle_days)) },
          { title: t.upkeep.used, isNumber: true, cell: (each) => t.common.times(each.access_count) },
        ]}
      />
      <ListEnd pages={weak} isFiltered={false} empty={t.upkeep.nothingGoes} note={t.upkeep.nothingGoesNote} />
    </Panel>
  );
}

function Webhooks({ app }: { app: string }) {
  const { t } = useWords();
  const endpoints = usePages(
    (api, cursor, signal) => api.get<Schemas["EndpointPageView"]>(appPath(app, "webhooks"), { cursor }, signal),
    (page) => page.endpoints,
    ["webhooks", app],
  );
  const deliveries = usePages(
    (api, cursor, signal) => api.get<Schemas["DeliveryPageView"]>(appPath(app, "webhook-deliveries"), { cursor, limit: 50 }, signal),
    (page) => page.deliveries,
    ["deliveries", app],
  );
  const changed = () => {
    endpoints.reload();
    deliveries.reload();
  };
  return (
    <>
      <Panel title={t.upkeep.endpoints} flush>
        <Table
          id="endpoints"
          rows={endpoints.rows}
          keyOf={(each) => each.id}
          columns={[
            {
              title: t.upkeep.address,
              cell: (each) => (
                <>
                  <code dir="auto">{each.url}</code>
                  <div class="note" dir="auto">
                    {each.description}
                  </div>
                </>
              ),
            },
            { title: t.upkeep.events, cell: (each) => each.event_types.join(", ") || t.upkeep.everyEvent },
            {
              title: t.operations.state,
              cell: (each) => (
                <>
                  <Badge tone={isOn(each) ? "good" : "bad"}>{isOn(each) ? t.upkeep.on : t.upkeep.off}</Badge>{" "}
                  {each.disabled_reason ?? (each.failures_in_row > 0 && t.upkeep.failures(each.failures_in_row))}
                </>
              ),
            },
            { title: t.upkeep.actions, cell: (each) => <EndpointActions app={app} endpoint={each} changed={changed} /> },
          ]}
        />
        <ListEnd pages={endpoints} isFiltered={false} empty={t.upkeep.noEndpoints} note={t.upkeep.noEndpointsNote} />
      </Panel>
      <Panel title={t.upkeep.deliveries} flush>
        <Table
          id="deliveries"
          rows={deliveries.rows}
          keyOf={(each) => each.id}
          columns={[
            { title: t.upkeep.event, cell: (each) => each.event_type },
            {
              title: t.operations.state,
              cell: (each) => <Badge tone={DELIVERIES[each.status]}>{t.upkeep.deliveryStates[each.status]}</Badge>,
            },
            { title: t.consolidation.attempts, isNumber: true, cell: (each) => each.attempts },
            { title: t.upkeep.answer, cell: (each) => each.response_status ?? each.error_code ?? "" },
            { title: t.operations.when, cell: (each) => <Time value={each.created_at} relative /> },
          ]}
        />
        <ListEnd pages={deliveries} isFiltered={false} empty={t.upkeep.noDeliveries} />
      </Panel>
    </>
  );
}

function isOn(endpoint: Endpoint): boolean {
  return endpoint.disabled_at === null;
}

function EndpointActions({ app, endpoint, changed }: { app: string; endpoint: Endpoint; changed: () => void }) {
  const { t } = useWords();
  const route = (what: string) => appPath(app, "webhooks", endpoint.id, what);
  const ping = useAction((api) => api.post(route("ping"), undefined), changed);
  const change = useAction((api) => api.post(route(isOn(endpoint) ? "disable" : "enable"), undefined), changed);
  const error = ping.error ?? change.error;
  return (
    <>
      <span class="actions">
        {isOn(endpoint) && (
          <Button small disabled={ping.busy} onClick={ping.run}>
            {t.upkeep.ping}
          </Button>
        )}
        <Button small disabled={change.busy} onClick={change.run}>
          {isOn(endpoint) ? t.upkeep.disable : t.upkeep.enable}
        </Button>
      </span>
      {error && <ErrorBox error={error} />}
    </>
  );
}

function Audit({ app }: { app: string }) {
  const { t } = useWords();
  const acts = usePages(
    (api, cursor, signal) => api.get<Schemas["ActPageView"]>(appPath(app, "audit"), { cursor }, signal),
    (page) => page.acts,
    ["audit", app],
  );
  return (
    <Panel title={t.upkeep.tabs.audit} flush>
      <Table
        id="acts"
        rows={acts.rows}
        keyOf={(each) => each.id}
        columns={[
          { title: t.upkeep.act, cell: (each) => each.action },
          { title: t.upkeep.actor, cell: (each) => <code>{each.actor}</code> },
          { title: t.upkeep.target, cell: (each) => <code dir="auto">{json(each.target)}</code> },
          { title: t.consolidation.outcome, cell: (each) => each.outcome },
          { title: t.operations.when, cell: (each) => <Time value={each.at} relative /> },
        ]}
      />
      <ListEnd pages={acts} isFiltered={false} empty={t.upkeep.noActs} />
    </Panel>
  );
}
