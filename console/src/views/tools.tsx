// The tools of an app: what each takes, who may call it, the log of calls, and a call to try.

import { useState } from "preact/hooks";

import { type ApiError, appPath, type Schemas, SLOW_MS, userPath } from "../core/api";
import { noteFailure, useAction, useLoad, usePages } from "../core/hooks";
import { go, Link, linkTo, useAddress } from "../core/router";
import { useMay, useSession } from "../core/session";
import { useWords } from "../i18n";
import { AddressField } from "../ui/address_field";
import { Badge, Button, ErrorBox, Field, Folded, json, Loaded, Panel, Stat, Stats, Tabs, Time, type Tone, ViewHead } from "../ui/basics";
import { Table } from "../ui/table";
import type { ViewProps } from "./registry";
import { ListEnd } from "./start";

type Tool = Schemas["ToolView"];
type Call = Schemas["CallView"];
type Execution = Schemas["ExecutionView"];

const TABS = ["tools", "log"] as const;
const STATES: Record<Execution["status"], Tone> = {
  waiting: "warn",
  running: "live",
  succeeded: "good",
  failed: "bad",
  timeout: "bad",
  cancelled: "plain",
  unknown: "warn",
  refused: "bad",
};

export function Tools({ app }: ViewProps) {
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const tab = may("admin") && address.get("tab") === "log" ? "log" : "tools";
  return (
    <>
      <ViewHead title={t.tools.title} lead={t.tools.lead(app)} />
      {may("admin") && (
        <Tabs
          label={t.tools.title}
          items={TABS.map((each) => ({ to: linkTo("tools", { app, tab: each }), text: t.tools.tabs[each], current: each === tab }))}
        />
      )}
      {tab === "log" ? <Log app={app} /> : <ToolList app={app} />}
    </>
  );
}

function ToolList({ app }: { app: string }) {
  const { t, number } = useWords();
  const address = useAddress();
  const chosen = address.get("tool");
  const tools = usePages(
    (api, cursor, signal) => api.get<Schemas["ToolPageView"]>(appPath(app, "tools"), { inactive: true, cursor }, signal),
    (page) => page.tools,
    ["tools", app],
  );
  return (
    <>
      {chosen && <ToolDetail key={chosen} app={app} name={chosen} changed={tools.reload} />}
      <Panel title={t.tools.tabs.tools} flush>
        <Table
          id="tools"
          rows={tools.rows}
          keyOf={(tool) => tool.name}
          columns={[
            {
              title: t.tools.tool,
              cell: (tool) => (
                <>
                  <Link class="name-link" to={linkTo("tools", { app, tool: tool.name })} aria-current={tool.name === chosen ? "true" : undefined}>
                    {tool.name}
                  </Link>
                  <div class="note clamped" dir="auto">
                    {tool.description}
                  </div>
                </>
              ),
            },
            {
              title: t.tools.source,
              cell: (tool) => (
                <>
                  {tool.source ?? t.tools.byHand} <span class="note">{tool.kind}</span>
                </>
              ),
            },
            { title: t.tools.calls, isNumber: true, cell: (tool) => number(tool.call_count) },
            { title: t.tools.latency, isNumber: true, cell: (tool) => `${number(tool.avg_latency_ms)} ms` },
            {
              title: t.operations.state,
              cell: (tool) => <Badge tone={tool.is_active ? "good" : "plain"}>{tool.is_active ? t.tools.active : t.tools.inactive}</Badge>,
            },
          ]}
        />
        <ListEnd pages={tools} isFiltered={false} empty={t.tools.noTools} note={t.tools.noToolsNote} />
      </Panel>
    </>
  );
}

function ToolDetail({ app, name, changed }: { app: string; name: string; changed: () => void }) {
  const { t, number } = useWords();
  const may = useMay();
  const address = useAddress();
  const tool = useLoad((api, signal) => api.get<Tool>(appPath(app, "tools", name), {}, signal), ["tool", app, name]);
  const versions = useLoad((api, signal) => api.get<Schemas["VersionListView"]>(appPath(app, "tools", name, "versions"), {}, signal), ["versions", app, name]);
  const done = () => {
    tool.reload();
    versions.reload();
    changed();
  };
  const isActive = tool.data?.is_active ?? true;
  const change = useAction((api) => api.post<Tool>(appPath(app, "tools", name, isActive ? "disable" : "enable"), undefined), done);
  return (
    <Panel
      title={name}
      aside={
        <>
          {may("admin") && tool.data && (
            <Button small disabled={change.busy} onClick={change.run}>
              {isActive ? t.upkeep.disable : t.upkeep.enable}
            </Button>
          )}
          <Button kind="quiet" small aria-label={t.common.close} onClick={() => go(address.with({ tool: null }))}>
            ✕
          </Button>
        </>
      }
      class="spaced-below"
      opened
    >
      {change.error && <ErrorBox error={change.error} />}
      <Loaded of={tool}>
        {(found) => (
          <>
            <p dir="auto">{found.description}</p>
            <Stats>
              <Stat label={t.tools.version} value={found.version} />
              <Stat label={t.tools.calls} value={number(found.call_count)} />
              <Stat label={t.tools.latency} value={`${number(found.avg_latency_ms)} ms`} />
              <Stat label={t.tools.timeout} value={`${number(found.timeout_seconds, 1)} s`} />
            </Stats>
            <div class="side-by-side">
              <section aria-label={t.tools.takes}>
                <h3>{t.tools.takes}</h3>
                <Folded text={JSON.stringify(found.input_schema, null, 2)} />
                <h3>{t.tools.permissions}</h3>
                <Folded text={json(found.permissions)} />
                <Loaded of={versions}>
                  {(list) => (
                    <>
                      <h3>{t.tools.versions}</h3>
                      <ul>
                        {list.versions.map((each) => (
                          <li key={each.version}>
                            {each.version} <span class="note"><Time value={each.created_at} relative /></span>
                          </li>
                        ))}
                      </ul>
                    </>
                  )}
                </Loaded>
              </section>
              {may("append") && found.is_active && <TryCall app={app} tool={found} done={done} />}
            </div>
          </>
        )}
      </Loaded>
    </Panel>
  );
}

/** Arguments to begin with: each property with an example, or an empty value of its type. */
export function exampleOf(schema: Record<string, unknown>): Record<string, unknown> {
  const properties = (schema.properties ?? {}) as Record<string, { type?: string | string[]; default?: unknown; enum?: unknown[]; examples?: unknown[] }>;
  const required = (schema.required ?? []) as string[];
  const empty: Record<string, unknown> = { string: "", integer: 0, number: 0, boolean: false, array: [], object: {} };
  return Object.fromEntries(
    Object.entries(properties)
      .filter(([name]) => required.includes(name))
      .map(([name, each]) => {
        const type = Array.isArray(each.type) ? each.type[0] : each.type;
        return [name, each.default ?? each.examples?.[0] ?? each.enum?.[0] ?? empty[type ?? "string"] ?? null];
      }),
  );
}

function TryCall({ app, tool, done }: { app: string; tool: Tool; done: () => void }) {
  const { t } = useWords();
  const session = useSession();
  const [user, setUser] = useState(session.me.user_id ?? "");
  const [text, setText] = useState(() => JSON.stringify(exampleOf(tool.input_schema), null, 2));
  const [outcome, setOutcome] = useState<Call | null>(null);
  const [error, setError] = useState<ApiError | null>(null);
  const [isWrong, setWrong] = useState(false);
  const [busy, setBusy] = useState(false);
  const send = (route: string, body: unknown) => {
    setBusy(true);
    setError(null);
    session.api.post<Call>(route, body, { timeoutMs: SLOW_MS }).then(
      (found) => {
        setBusy(false);
        setOutcome(found);
        done();
      },
      (failure: unknown) => {
        setBusy(false);
        setError(noteFailure(failure, session, { retries: false }));
      },
    );
  };
  const call = () => {
    let params: unknown;
    try {
      params = JSON.parse(text);
    } catch {
      setWrong(true);
      return;
    }
    setWrong(false);
    setOutcome(null);
    send(userPath(app, user, "tools", tool.name, "call"), { params });
  };
  return (
    <section aria-label={t.tools.tryCall}>
      <h3>{t.tools.tryCall}</h3>
      <form
        class="try-call"
        onSubmit={(event) => {
          event.preventDefault();
          call();
        }}
      >
        {session.me.user_id === null && <Field label={t.tools.onBehalf} value={user} onValue={setUser} required maxLength={255} />}
        <label class="field">
          <span class="label">{t.tools.arguments}</span>
          <textarea
            class="code"
            rows={8}
            spellcheck={false}
            value={text}
            aria-invalid={isWrong}
            aria-describedby={isWrong ? "wrong-json" : undefined}
            onInput={(event) => setText(event.currentTarget.value)}
          />
        </label>
        {isWrong && (
          <p id="wrong-json" role="alert" class="failed">
            {t.tools.wrongJson}
          </p>
        )}
        <p>
          <Button type="submit" kind="primary" disabled={busy}>
            {t.tools.call}
          </Button>
        </p>
      </form>
      {error && <ErrorBox error={error} />}
      {outcome && (
        <div class="call-outcome" role="status">
          <p>
            <Badge tone={STATES[outcome.status]}>{t.tools.states[outcome.status]}</Badge> <span class="note">{Math.round(outcome.latency_ms)} ms</span>
          </p>
          {outcome.error !== null && (
            <p class="failed" dir="auto">
              <code>{outcome.error_code}</code> {outcome.error}
            </p>
          )}
          {outcome.status === "succeeded" && <Folded text={typeof outcome.value === "string" ? outcome.value : JSON.stringify(outcome.value, null, 2)} />}
          {outcome.status === "waiting" && outcome.execution_id && (
            <p class="job-actions">
              {[true, false].map((approved) => (
                <Button
                  key={String(approved)}
                  kind={approved ? "primary" : "danger"}
                  disabled={busy}
                  onClick={() => send(userPath(app, user, "tool-executions", outcome.execution_id ?? "", "decision"), { approved })}
                >
                  {approved ? t.tools.confirm : t.tools.deny}
                </Button>
              ))}
            </p>
          )}
        </div>
      )}
    </section>
  );
}

function Log({ app }: { app: string }) {
  const { t, number } = useWords();
  const address = useAddress();
  const tool = address.get("tool");
  const [open, setOpen] = useState<string | null>(null);
  const calls = usePages(
    (api, cursor, signal) => api.get<Schemas["ExecutionPageView"]>(appPath(app, "tool-executions"), { tool, cursor }, signal),
    (page) => page.executions,
    ["executions", app, tool],
  );
  return (
    <Panel
      title={t.tools.tabs.log}
      aside={<AddressField label={t.tools.tool} name="tool" hideLabel />}
      flush
    >
      <Table
        id="calls"
        rows={calls.rows}
        keyOf={(each) => each.id}
        columns={[
          {
            title: t.tools.tool,
            cell: (each) => (
              <>
                <Button kind="quiet" small aria-expanded={open === each.id} onClick={() => setOpen(open === each.id ? null : each.id)}>
                  {each.tool_name}
                </Button>
                {open === each.id && (
                  <div class="call-detail">
                    <h3>{t.tools.arguments}</h3>
                    <Folded text={JSON.stringify(each.input_params, null, 2)} />
                    <h3>{t.tools.result}</h3>
                    <Folded text={each.error ?? JSON.stringify(each.output_result, null, 2) ?? ""} />
                  </div>
                )}
              </>
            ),
          },
          {
            title: t.operations.state,
            cell: (each) => (
              <>
                <Badge tone={STATES[each.status]}>{t.tools.states[each.status]}</Badge> {each.error_code}
              </>
            ),
          },
          { title: t.start.user, isText: true, cell: (each) => each.user_id || t.common.none },
          { title: t.tools.latency, isNumber: true, cell: (each) => (each.latency_ms === null ? "" : `${number(each.latency_ms)} ms`) },
          { title: t.operations.when, cell: (each) => <Time value={each.created_at} relative /> },
        ]}
      />
      <ListEnd pages={calls} isFiltered={false} empty={t.tools.noCalls} />
    </Panel>
  );
}
