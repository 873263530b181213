// What was done for a thread, as traces; one of them as a waterfall.

import { useEffect, useState } from "preact/hooks";

import { type Schemas, userPath } from "../../core/api";
import { useLoad, usePages } from "../../core/hooks";
import { Link, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { Badge, Button, Empty, ErrorBox, Loaded, Loading, Time } from "../../ui/basics";
import type { Owner } from ".";

type Span = Schemas["SpanView"];

const NS_PER_MS = 1e6;
const SHOWN_MIN = 10;
const READ_MAX = 1000;

export function TracesPanel({ owner, thread }: { owner: Owner; thread: string }) {
  const { t, number } = useWords();
  const address = useAddress();
  const chosen = address.get("trace");
  const traces = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["TracePageView"]>(userPath(owner.app, owner.user, "traces"), { session_id: thread, limit: 100, cursor }, signal),
    (page) => page.traces,
    ["traces", owner, thread],
  );
  const [hasReads, setReads] = useState(false);
  // What pages ask every second says little.
  const shown = hasReads ? traces.rows : traces.rows.filter((each) => !each.name.startsWith("GET "));
  useEffect(() => {
    if (shown.length < SHOWN_MIN && traces.rows.length < READ_MAX) traces.more();
  }, [shown.length, traces.rows.length]);
  if (traces.rows.length === 0) {
    if (traces.error) return <ErrorBox error={traces.error} retry={traces.reload} />;
    return traces.loading ? <Loading /> : <Empty title={t.conversation.noTraces}>{t.conversation.noTracesNote}</Empty>;
  }
  return (
    <div id="traces">
      {chosen && <Waterfall key={chosen} owner={owner} trace={chosen} />}
      <label class="check">
        <input type="checkbox" checked={hasReads} onChange={(event) => setReads(event.currentTarget.checked)} />
        {t.conversation.readsToo}
      </label>
      {shown.length === 0 && <p class="note">{t.conversation.onlyReads}</p>}
      <ul class="run-items">
        {shown.map((each) => (
          <li key={each.span_id}>
            <Link to={address.with({ trace: each.trace_id })} aria-current={each.trace_id === chosen ? "true" : undefined}>
              {each.name}
            </Link>{" "}
            {each.error && <Badge tone="bad">{each.error}</Badge>}
            <p class="note">
              <Time value={each.started_at} /> · {t.conversation.milliseconds(number(each.duration_ns / NS_PER_MS, 1))} · {each.service}
            </p>
          </li>
        ))}
      </ul>
      {traces.hasMore && (
        <Button small onClick={traces.more}>
          {t.common.more}
        </Button>
      )}
    </div>
  );
}

interface Row {
  span: Span;
  depth: number;
}

/** Order spans below those that caused them, in the order of their start. */
function tree(spans: readonly Span[]): Row[] {
  const ids = new Set(spans.map((each) => each.span_id));
  const below = new Map<string, Span[]>();
  for (const span of spans) {
    const parent = span.parent_span_id !== null && ids.has(span.parent_span_id) ? span.parent_span_id : "";
    below.set(parent, [...(below.get(parent) ?? []), span]);
  }
  const rows: Row[] = [];
  const add = (parent: string, depth: number) => {
    for (const span of below.get(parent) ?? []) {
      rows.push({ span, depth });
      add(span.span_id, depth + 1);
    }
  };
  add("", 0);
  return rows;
}

function count(span: Span, name: string): number {
  const value = span.attributes[name];
  return typeof value === "number" ? value : 0;
}

/** The tokens of the model calls of a trace. */
export function tokensOf(spans: readonly Span[]): { input: number; output: number } {
  return {
    input: spans.reduce((sum, each) => sum + count(each, "gen_ai.usage.input_tokens"), 0),
    output: spans.reduce((sum, each) => sum + count(each, "gen_ai.usage.output_tokens"), 0),
  };
}

function Waterfall({ owner, trace }: { owner: Owner; trace: string }) {
  const { t, number } = useWords();
  const found = useLoad(
    (api, signal) => api.get<Schemas["TraceView"]>(userPath(owner.app, owner.user, "traces", trace), {}, signal),
    ["trace", owner, trace],
  );
  return (
    <Loaded of={found}>
      {({ spans }) => {
        const starts = spans.map((each) => Date.parse(each.started_at));
        const from = Math.min(...starts);
        const to = Math.max(...spans.map((each, index) => (starts[index] ?? 0) + each.duration_ns / NS_PER_MS), from + 0.001);
        const { input, output } = tokensOf(spans);
        return (
          <section class="waterfall" aria-label={t.conversation.waterfall}>
            <p class="note">
              {t.conversation.milliseconds(number(to - from, 1))} · {t.conversation.spans(spans.length)}
              {input + output > 0 && ` · ${t.conversation.tokens(number(input), number(output))}`}
            </p>
            <ol>
              {tree(spans).map(({ span, depth }) => {
                const left = (100 * (Date.parse(span.started_at) - from)) / (to - from);
                const width = (100 * span.duration_ns) / NS_PER_MS / (to - from);
                return (
                  <li key={span.span_id} title={`${span.name} · ${span.service}`}>
                    <span class="span-name" style={{ paddingLeft: `${Math.min(depth, 8) * 10}px` }}>
                      {span.name}
                    </span>
                    <span class="span-track" aria-hidden="true">
                      <span
                        class={`span-bar ${span.error ? "bad" : span.kind}`}
                        style={{ left: `${Math.min(left, 99)}%`, width: `${Math.max(Math.min(width, 100 - left), 0.8)}%` }}
                      />
                    </span>
                    <span class="note">
                      {t.conversation.milliseconds(number(span.duration_ns / NS_PER_MS, 1))} {span.error && <span class="failed">{span.error}</span>}
                    </span>
                  </li>
                );
              })}
            </ol>
          </section>
        );
      }}
    </Loaded>
  );
}
