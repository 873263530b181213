// The context window for a query: its text coloured by part, the budget as a bar, and what was left out.

import { type Schemas, userPath } from "../../core/api";
import { useLoad } from "../../core/hooks";
import { type Address, go, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { AddressField } from "../../ui/address_field";
import { Badge, Empty, Folded, Loaded, Panel, type Tone } from "../../ui/basics";
import { Table } from "../../ui/table";

type Window = Schemas["ContextView"];
type Part = Window["items"][number]["context_type"];

const PARTS: readonly Part[] = ["system", "fact", "memory", "history"];
const TEMPLATES = ["markdown", "xml", "messages"] as const;
const REASONS: Record<Window["left_out"][number]["reason"], Tone> = { repeats: "plain", too_big: "warn", no_room: "warn" };
const TOKENS = 800;

export function ContextWindow({ app, user, query }: { app: string; user: string; query: string }) {
  const { t, number } = useWords();
  const address = useAddress();
  const template = TEMPLATES.find((each) => each === address.get("template")) ?? "markdown";
  const body = {
    query,
    explain: true,
    max_tokens: Math.min(Math.max(Math.round(Number(address.get("tokens")) || TOKENS), 1), 10_000_000),
    session_id: address.get("session"),
    system_prompt: address.get("prompt"),
    profile: address.get("profile") !== null,
    template,
  };
  const found = useLoad((api, signal) => api.post<Window>(userPath(app, user, "context"), body, { signal }), ["window", app, user, body]);
  return (
    <div class="columns with-filters">
      <div aria-busy={found.loading}>
        <Loaded of={found}>
          {(data) => (
            <>
              {data.degraded && <p class="notice">{data.degraded}</p>}
              <Panel title={t.search.budget} aside={t.search.tokensOf(number(data.total_tokens), number(data.max_tokens))}>
                <Budget of={data} />
              </Panel>
              <Panel title={t.search.windowText} aside={<Legend />}>
                {data.text ? <ColouredText of={data} /> : <Empty title={t.search.emptyWindow} />}
              </Panel>
              <Panel title={t.search.leftOut} aside={number(data.left_out.length)} flush>
                <LeftOut of={data} />
              </Panel>
            </>
          )}
        </Loaded>
      </div>
      <Settings address={address} template={template} tokens={body.max_tokens} />
    </div>
  );
}

function Legend() {
  const { t } = useWords();
  return (
    <span class="legend">
      {PARTS.map((part) => (
        <span key={part}>
          <span class={`key window-${part}`} aria-hidden="true" /> {t.search.windowParts[part]}
        </span>
      ))}
    </span>
  );
}

function Budget({ of }: { of: Window }) {
  const { t, number } = useWords();
  return (
    <>
      <div
        class="stack tall"
        role="img"
        aria-label={of.account.map((each) => `${t.search.windowParts[each.context_type]} ${each.used}`).join(", ")}
      >
        {of.account.map((each) => (
          <span key={each.context_type} class={`segment window-${each.context_type}`} style={{ width: `${(100 * each.used) / of.max_tokens}%` }} />
        ))}
      </div>
      <Table
        class="tight"
        rows={of.account}
        keyOf={(each) => each.context_type}
        columns={[
          {
            title: t.search.part,
            cell: (each) => (
              <>
                <span class={`key window-${each.context_type}`} aria-hidden="true" /> {t.search.windowParts[each.context_type]}
              </>
            ),
          },
          { title: t.search.used, isNumber: true, cell: (each) => number(each.used) },
          { title: t.search.share, isNumber: true, cell: (each) => number(each.share) },
          { title: t.search.items, isNumber: true, cell: (each) => number(each.items) },
          { title: t.search.leftOut, isNumber: true, cell: (each) => number(each.left_out) },
        ]}
      />
    </>
  );
}

/** The part that each line of the window belongs to: that of the item in it, or, for a header, of the next item. */
export function partsOfLines(of: Pick<Window, "text" | "items">): { line: string; part: Part }[] {
  const firstLines = of.items.map((item) => (item.content.split("\n", 1)[0] ?? "").trim());
  const parts: (Part | null)[] = [];
  let next = 0;
  let within = 0;
  const lines = of.text.split("\n");
  for (const line of lines) {
    const item = of.items.findIndex((_, index) => index >= next && index < next + 3 && firstLines[index] !== "" && line.includes(firstLines[index] ?? ""));
    const found = item < 0 ? undefined : of.items[item];
    if (within > 0) {
      within -= 1;
      parts.push(parts[parts.length - 1] ?? null);
    } else if (found) {
      next = item + 1;
      within = found.content.split("\n").length - 1;
      parts.push(found.context_type);
    } else parts.push(null);
  }
  let following: Part = of.items[of.items.length - 1]?.context_type ?? "history";
  const named = parts
    .reverse()
    .map((part) => {
      if (part !== null) following = part;
      return following;
    })
    .reverse();
  return lines.map((line, index) => ({ line, part: named[index] ?? "history" }));
}

function ColouredText({ of }: { of: Window }) {
  const groups: { part: Part; lines: string[] }[] = [];
  for (const { line, part } of partsOfLines(of)) {
    const last = groups[groups.length - 1];
    if (last?.part === part) last.lines.push(line);
    else groups.push({ part, lines: [line] });
  }
  return (
    <div class="window-text">
      {groups.map((group, index) => (
        <pre key={index} class={`window-group window-${group.part}`} dir="auto">
          {group.lines.join("\n")}
        </pre>
      ))}
    </div>
  );
}

function LeftOut({ of }: { of: Window }) {
  const { t, number } = useWords();
  if (of.left_out.length === 0) return <Empty title={t.search.nothingLeftOut} />;
  return (
    <Table
      frame="left-out"
      rows={of.left_out}
      keyOf={(_, nth) => nth}
      columns={[
        { title: t.search.part, cell: (each) => t.search.windowParts[each.context_type] },
        { title: t.search.text, cell: (each) => <Folded text={each.content ?? ""} /> },
        { title: t.search.tokens, isNumber: true, cell: (each) => number(each.token_estimate) },
        { title: t.search.why, cell: (each) => <Badge tone={REASONS[each.reason]}>{t.search.reasons[each.reason]}</Badge> },
      ]}
    />
  );
}

function Settings({ address, template, tokens }: { address: Address; template: string; tokens: number }) {
  const { t } = useWords();
  const change = (changes: Record<string, string | number | null>) => go(address.with(changes), { replace: true });
  return (
    <Panel title={t.search.settings}>
      <div class="filter-fields">
        <AddressField label={t.search.maxTokens} name="tokens" type="number" min={1} max={10_000_000} initial={String(tokens)} />
        <AddressField label={t.search.history} name="session" />
        <label class="field">
          <span class="label">{t.search.template}</span>
          <select value={template} onChange={(event) => change({ template: event.currentTarget.value })}>
            {TEMPLATES.map((each) => (
              <option key={each} value={each}>
                {each}
              </option>
            ))}
          </select>
        </label>
        <label class="field">
          <span class="label">{t.search.systemPrompt}</span>
          <textarea rows={3} defaultValue={address.get("prompt") ?? ""} onChange={(event) => change({ prompt: event.currentTarget.value })} />
        </label>
        <label class="check">
          <input type="checkbox" checked={address.get("profile") !== null} onChange={(event) => change({ profile: event.currentTarget.checked ? 1 : null })} />
          {t.search.profile}
        </label>
      </div>
    </Panel>
  );
}
