// Apps and users: listed, and found by typing; what was said last, how much is remembered, and what waits.

import { useEffect, useRef, useState } from "preact/hooks";

import { appPath, type Schemas } from "../core/api";
import { usePages, useSettled } from "../core/hooks";
import { Address, go, Link, linkTo, useAddress } from "../core/router";
import { useSession } from "../core/session";
import { useWords } from "../i18n";
import { Badge, Button, Empty, ErrorBox, Field, Loading, Panel, Time, ViewHead } from "../ui/basics";
import { Table } from "../ui/table";

const COUNTED_MAX = 1000;

export function Start() {
  const { t } = useWords();
  const { me } = useSession();
  const address = useAddress();
  const app = me.app_name ?? address.app;
  return (
    <>
      <ViewHead title={t.start.title} lead={t.start.lead} />
      <div class="columns">
        <div>
          {me.app_name === null && <Apps chosen={app} />}
          {app && <Users key={app} app={app} />}
        </div>
        <OpenByName app={app ?? ""} isBound={me.app_name !== null} />
      </div>
    </>
  );
}

/** A text that is kept in the address once typing settles. */
function useFilter(name: string): [string, string, (text: string) => void] {
  const address = useAddress();
  const [text, setText] = useState(address.get(name) ?? "");
  const settled = useSettled(text);
  useEffect(() => {
    // The address of now: another list of the page may have changed it since this was drawn.
    const now = new Address(location.search);
    go(location.search ? now.with({ [name]: settled }) : linkTo("start", { [name]: settled }), { replace: true });
  }, [settled]);
  return [text, settled, setText];
}

function Apps({ chosen }: { chosen: string | null }) {
  const { t } = useWords();
  const [text, contains, setText] = useFilter("find_app");
  const apps = usePages(
    (api, cursor, signal) => api.get<Schemas["AppSummaryPageView"]>("v1/apps", { contains, cursor }, signal),
    (page) => page.apps,
    ["apps", contains],
  );
  // With one app there is nothing to choose.
  const only = apps.rows.length === 1 && !apps.hasMore && !contains ? apps.rows[0] : undefined;
  useEffect(() => {
    if (only && chosen === null) go(linkTo("start", { app: only.app_name }), { replace: true });
  }, [only?.app_name]);
  return (
    <Panel
      title={t.start.apps}
      aside={<Field label={t.start.findApp} hideLabel type="search" placeholder={t.start.findApp} value={text} onValue={setText} />}
      flush
    >
      <Table
        id="apps"
        rows={apps.rows}
        keyOf={(each) => each.app_name}
        columns={[
          {
            title: t.start.app,
            cell: (each) => (
              <Link
                class="name-link"
                dir="auto"
                to={linkTo("start", { app: each.app_name, find_app: contains })}
                aria-current={each.app_name === chosen ? "true" : undefined}
              >
                {each.app_name}
              </Link>
            ),
          },
          { title: t.start.sessions, isNumber: true, cell: (each) => t.common.counted(each.sessions, COUNTED_MAX) },
          { title: t.start.memories, isNumber: true, cell: (each) => t.common.counted(each.memories, COUNTED_MAX) },
          { title: t.start.facts, isNumber: true, cell: (each) => t.common.counted(each.facts, COUNTED_MAX) },
        ]}
      />
      <ListEnd pages={apps} isFiltered={contains !== ""} empty={t.start.noApps} note={t.start.noAppsNote} />
    </Panel>
  );
}

function Users({ app }: { app: string }) {
  const { t } = useWords();
  const [text, contains, setText] = useFilter("find");
  const users = usePages(
    (api, cursor, signal) => api.get<Schemas["UserSummaryPageView"]>(appPath(app, "users"), { contains, cursor }, signal),
    (page) => page.users,
    ["users", app, contains],
  );
  const field = useRef<HTMLInputElement>(null);
  return (
    <Panel
      title={t.start.usersOf(app)}
      aside={
        <Field label={t.start.findUser} hideLabel type="search" placeholder={t.start.findUser} value={text} onValue={setText} field={field} />
      }
      flush
    >
      <Table
        id="users"
        class="people"
        rows={users.rows}
        keyOf={(each) => each.user_id}
        columns={[
          {
            title: t.start.user,
            cell: (each) => (
              <>
                <Link class="name-link" dir="auto" to={linkTo("memory", { app, user: each.user_id })}>
                  {each.user_id}
                </Link>
                <div class="note">
                  {t.start.sessions} {t.common.counted(each.sessions, COUNTED_MAX)}
                </div>
              </>
            ),
          },
          { title: t.start.said, cell: (each) => <SaidLast app={app} user={each} /> },
          { title: t.start.memories, isNumber: true, cell: (each) => t.common.counted(each.memories, COUNTED_MAX) },
          { title: t.start.facts, isNumber: true, cell: (each) => t.common.counted(each.facts, COUNTED_MAX) },
          {
            title: t.start.waiting,
            note: t.start.waitingNote,
            isNumber: true,
            cell: (each) => (each.waiting_events > 0 ? <Badge tone="warn">{each.waiting_events}</Badge> : "0"),
          },
        ]}
      />
      <ListEnd pages={users} isFiltered={contains !== ""} empty={t.start.noUsers} />
    </Panel>
  );
}

function SaidLast({ app, user }: { app: string; user: Schemas["UserSummaryView"] }) {
  const { t } = useWords();
  if (user.last_text === null) return <span class="note">{t.start.nothingSaid}</span>;
  return (
    <>
      <Link class="said" dir="auto" to={linkTo("conversation", { app, user: user.user_id, thread: user.last_session_id })}>
        {user.last_text}
      </Link>
      <div class="note">{user.last_said_at && <Time value={user.last_said_at} relative />}</div>
    </>
  );
}

interface EndProps {
  pages: Omit<ReturnType<typeof usePages>, "rows"> & { rows: unknown[] };
  isFiltered: boolean;
  empty: string;
  note?: string;
}

/** What follows the last row of a list: the next page, why there is none, or that it is empty. */
export function ListEnd({ pages, isFiltered, empty, note }: EndProps) {
  const { t } = useWords();
  // A page of a filtered list may be empty before the last one.
  useEffect(() => {
    if (isFiltered && pages.rows.length === 0 && !pages.loading && !pages.error) pages.more();
  }, [isFiltered, pages.rows, pages.loading, pages.error]);
  if (pages.error) return <ErrorBox error={pages.error} retry={pages.retry} />;
  if (pages.loading) return <Loading />;
  if (pages.hasMore) {
    return (
      <p class="state">
        <Button onClick={pages.more}>{t.common.more}</Button>
      </p>
    );
  }
  if (pages.rows.length > 0) return null;
  return <Empty title={isFiltered ? t.start.noMatch : empty}>{isFiltered ? null : note}</Empty>;
}

function OpenByName({ app, isBound }: { app: string; isBound: boolean }) {
  const { t } = useWords();
  // What was typed stays, whichever app is chosen meanwhile.
  const [typed, setTyped] = useState<string | null>(null);
  const [user, setUser] = useState("");
  const name = typed ?? app;
  return (
    <Panel title={t.start.openTitle}>
      <form
        class="open-form"
        onSubmit={(event) => {
          event.preventDefault();
          if (name && user) go(linkTo("memory", { app: name, user }));
        }}
      >
        {!isBound && <Field label={t.start.app} name="app" value={name} onValue={setTyped} required maxLength={255} />}
        <Field label={t.start.user} name="user" value={user} onValue={setUser} required maxLength={255} />
        <Button type="submit" kind="primary">
          {t.start.open}
        </Button>
      </form>
    </Panel>
  );
}
