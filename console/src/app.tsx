// The frame of every view: sign-in, the head, the navigation, and what the address names.

import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";

import { Api, ApiError, type Caller, failureOf } from "./core/api";
import { type Address, go, Link, linkTo, useAddress } from "./core/router";
import { SessionContext } from "./core/session";
import { applyTheme, chooseTheme, type Theme, theme } from "./core/theme";
import { useWords } from "./i18n";
import { Boundary } from "./ui/boundary";
import { Button, Empty, ErrorBox, Field, Loading } from "./ui/basics";
import { Icon } from "./ui/icons";
import { isAllowed, VIEWS, type View } from "./views/registry";

applyTheme(theme());

const AGAIN_MS = 3000;
const THEMES: readonly Theme[] = ["system", "light", "dark"];

export function App() {
  const { t } = useWords();
  const [key, setKey] = useState<string | null>(null);
  const [me, setMe] = useState<Caller | null>(null);
  const [problem, setProblem] = useState<"none" | "wanted" | "refused">("none");
  // Why the first call failed, where no key helps.
  const [failure, setFailure] = useState<ApiError | null>(null);
  const [round, setRound] = useState(0);
  const [isAway, setAway] = useState(false);
  const api = useMemo(() => new Api(key), [key]);

  useEffect(() => {
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = () => {
      api.get<Caller>("api/me", {}, controller.signal).then(
        (found) => {
          setMe(found);
          setAway(false);
          setProblem("none");
        },
        (error: unknown) => {
          if (controller.signal.aborted) return;
          const kind = error instanceof ApiError ? error.kind : "refused";
          setAway(kind === "away");
          if (kind === "away") timer = setTimeout(ask, AGAIN_MS);
          else if (kind === "key") setProblem(key === null ? "wanted" : "refused");
          else setFailure(failureOf(error));
        },
      );
    };
    setFailure(null);
    ask();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [api, round]);

  const session = useMemo(
    () =>
      me && {
        api,
        me,
        refused: () => {
          setMe(null);
          setProblem(key === null ? "wanted" : "refused");
        },
        away: setAway,
      },
    [api, me],
  );
  const signOut = () => {
    setMe(null);
    setKey(null);
    setProblem("wanted");
  };

  return (
    <SessionContext.Provider value={session}>
      <Frame me={me} signOut={key === null ? null : signOut} isAway={isAway}>
        {problem !== "none" ? (
          <SignIn isRefused={problem === "refused"} submit={(given) => (given === key ? setProblem("refused") : setKey(given))} />
        ) : me === null && failure !== null ? (
          <ErrorBox error={failure} retry={() => setRound((last) => last + 1)} />
        ) : me === null ? (
          <Loading />
        ) : me.roles.includes("read") ? (
          <Current me={me} />
        ) : (
          <Empty title={t.frame.noRead}>{t.frame.noReadNote}</Empty>
        )}
      </Frame>
    </SessionContext.Provider>
  );
}

function SignIn({ isRefused, submit }: { isRefused: boolean; submit: (key: string) => void }) {
  const { t } = useWords();
  const [key, setKey] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, [isRefused]);
  return (
    <form
      class="sign-in panel"
      onSubmit={(event) => {
        event.preventDefault();
        if (key) submit(key);
      }}
    >
      <h1>{t.signIn.title}</h1>
      <p id="key-status" role="alert" class={isRefused ? "failed" : "lead"}>
        {isRefused ? t.signIn.refused : t.signIn.wanted}
      </p>
      <Field label={t.signIn.key} type="password" value={key} onValue={setKey} field={field} required aria-describedby="key-status key-note" />
      <Button type="submit" kind="primary">
        {t.signIn.submit}
      </Button>
      <p id="key-note" class="note">
        {t.signIn.note}
      </p>
    </form>
  );
}

interface FrameProps {
  me: Caller | null;
  signOut: (() => void) | null;
  isAway: boolean;
  children: ComponentChildren;
}

function Frame({ me, signOut, isAway, children }: FrameProps) {
  const { t, language, choose } = useWords();
  const address = useAddress();
  const [chosen, setChosen] = useState(theme);
  const app = me?.app_name ?? address.app;
  const user = me?.user_id ?? address.user;
  const main = useRef<HTMLElement>(null);
  return (
    <div class="frame">
      <a
        class="skip"
        href="#main"
        onClick={(event) => {
          event.preventDefault();
          main.current?.focus();
        }}
      >
        {t.frame.skip}
      </a>
      <header class="top">
        <Link to={linkTo("start")} class="brand">
          <img src="page/icon.svg" alt="" width="24" height="24" /> <span>Hippocampus</span>
        </Link>
        {me && app && (
          <nav class="crumbs" aria-label={t.frame.where}>
            <Link to={linkTo("start", { app })} dir="auto">
              {app}
            </Link>
            {user && (
              <>
                <span aria-hidden="true">/</span>
                <Link to={linkTo("memory", { app, user })} dir="auto">
                  {user}
                </Link>
              </>
            )}
          </nav>
        )}
        <div class="tools">
          <label>
            <span class="hidden-text">{t.frame.language}</span>
            <select value={language} onChange={(event) => choose(event.currentTarget.value === "zh" ? "zh" : "en")}>
              <option value="en" lang="en">
                English
              </option>
              <option value="zh" lang="zh-Hans">
                中文
              </option>
            </select>
          </label>
          <label>
            <span class="hidden-text">{t.frame.theme}</span>
            <select
              value={chosen}
              onChange={(event) => {
                const next = THEMES.find((each) => each === event.currentTarget.value) ?? "system";
                chooseTheme(next);
                setChosen(next);
              }}
            >
              {THEMES.map((each) => (
                <option key={each} value={each}>
                  {t.frame.themes[each]}
                </option>
              ))}
            </select>
          </label>
          <a class="button quiet small" href="docs" target="_blank" rel="noopener">
            API
          </a>
          {signOut && (
            <Button kind="quiet" small onClick={signOut}>
              {t.frame.signOut}
            </Button>
          )}
        </div>
      </header>
      {me && <Navigation me={me} address={address} app={app} user={user} />}
      <main id="main" ref={main} tabIndex={-1}>
        {isAway && (
          <p id="notice" class="notice" role="alert">
            {t.common.away} {t.frame.retrying}
          </p>
        )}
        {children}
      </main>
    </div>
  );
}

interface NavigationProps {
  me: Caller;
  address: Address;
  app: string | null;
  user: string | null;
}

function Navigation({ me, address, app, user }: NavigationProps) {
  const { t } = useWords();
  const shown = VIEWS.filter(
    (view) => isAllowed(view, me) && (view.scope === "installation" || (app && (view.scope === "app" || user))),
  );
  const groups = (["installation", "app", "user"] as const).map((scope) => ({
    scope,
    views: shown.filter((view) => view.scope === scope),
  }));
  return (
    <nav class="side" aria-label={t.frame.views}>
      {groups.map(({ scope, views }) => (
        <NavigationGroup key={scope} title={t.frame.scopes[scope]} views={views} current={address.view} app={app} user={user} />
      ))}
    </nav>
  );
}

interface GroupProps {
  title: string;
  views: readonly View[];
  current: string;
  app: string | null;
  user: string | null;
}

function NavigationGroup({ title, views, current, app, user }: GroupProps) {
  const { t } = useWords();
  if (views.length === 0) return null;
  return (
    <div class="nav-group">
      <p class="nav-title">{title}</p>
      {views.map((view) => (
        <Link
          key={view.name}
          to={linkTo(view.name, view.scope === "installation" ? {} : view.scope === "app" ? { app } : { app, user })}
          aria-current={current === view.name ? "page" : undefined}
        >
          <Icon name={view.name} />
          {t.nav[view.name]}
        </Link>
      ))}
    </div>
  );
}

/** The view that the address names. */
function Current({ me }: { me: Caller }) {
  const { t } = useWords();
  const address = useAddress();
  const view = VIEWS.find((each) => each.name === address.view);
  const app = me.app_name ?? address.app ?? "";
  const user = me.user_id ?? address.user ?? "";
  // A key of one user has nothing to choose.
  const isElsewhere = view?.name === "start" && me.user_id !== null;
  const title = view ? t.nav[view.name] : "";
  useEffect(() => {
    if (isElsewhere) go(linkTo("memory", { app, user }), { replace: true });
  }, [isElsewhere]);
  useEffect(() => {
    document.title = [title, user, "Hippocampus"].filter(Boolean).join(" · ");
  }, [title, user]);
  if (isElsewhere) return <Loading />;
  const isNamed = view && (view.scope === "installation" || (app && (view.scope === "app" || user)));
  if (!view || !isNamed) return <Empty title={t.frame.noView}>{t.frame.noViewNote}</Empty>;
  const isOthers = (me.app_name && address.app && address.app !== me.app_name) || (me.user_id && address.user && address.user !== me.user_id);
  if (!isAllowed(view, me) || isOthers) return <Empty title={t.common.forbidden} />;
  const View = view.component;
  // Choosing an app in a view of the whole installation keeps what was typed in it.
  const of = view.scope === "installation" ? [] : view.scope === "app" ? [app] : [app, user];
  return (
    <Boundary key={JSON.stringify([view.name, ...of])} at={location.search}>
      <View app={app} user={user} />
    </Boundary>
  );
}
