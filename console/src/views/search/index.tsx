// A search and a context window as an agent would get them, and why: the parts of each score, and where the budget went.

import { useTyped } from "../../core/hooks";
import { go, linkTo, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { Button, Empty, Field, Tabs, ViewHead } from "../../ui/basics";
import type { ViewProps } from "../registry";
import { Results } from "./results";
import { ContextWindow } from "./window";

const TABS = ["results", "window"] as const;

export function Search({ app, user }: ViewProps) {
  const { t } = useWords();
  const address = useAddress();
  const query = address.get("q") ?? "";
  const tab = TABS.find((each) => each === address.get("tab")) ?? "results";
  return (
    <>
      <ViewHead title={t.search.title} lead={t.search.lead} />
      <QueryForm query={query} />
      <Tabs
        label={t.search.title}
        items={TABS.map((each) => ({
          to: address.with({ view: "search", tab: each }),
          text: t.search.tabs[each],
          current: each === tab,
        }))}
      />
      {tab === "window" ? (
        <ContextWindow app={app} user={user} query={query} />
      ) : query.trim() ? (
        <Results app={app} user={user} query={query} />
      ) : (
        <Empty title={t.search.noQuery}>{t.search.noQueryNote}</Empty>
      )}
    </>
  );
}

function QueryForm({ query }: { query: string }) {
  const { t } = useWords();
  const address = useAddress();
  const [text, setText] = useTyped(query);
  return (
    <form
      class="query-form"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        go(address.with({ view: "search", q: text.trim() }));
      }}
    >
      <Field label={t.search.query} hideLabel type="search" name="q" placeholder={t.search.placeholder} value={text} onValue={setText} maxLength={32768} />
      <Button type="submit" kind="primary">
        {t.search.submit}
      </Button>
    </form>
  );
}

/** The link to where a row can be seen whole. */
export function linkToRow(app: string, user: string, row: { source: string; id: string; session: string | null; turn: number | null; key?: string | null; kind?: string }): string | null {
  if (row.source === "memory") return linkTo("memory", { app, user, tab: "memories", id: row.id });
  if (row.source === "fact" || row.source === "fact_version") {
    return row.key ? linkTo("memory", { app, user, type: row.kind ?? null, key: row.key }) : linkTo("memory", { app, user });
  }
  return row.session ? linkTo("conversation", { app, user, thread: row.session, turn: row.turn }) : null;
}
