// A thread's state by scope, and the events that changed it.

import { path, type Schemas } from "../../core/api";
import { useLoad, usePages, useRounds } from "../../core/hooks";
import { useWords } from "../../i18n";
import { Button, ErrorBox, json, Loaded, Time } from "../../ui/basics";
import type { Owner } from ".";

const SCOPES = ["session", "user", "app"] as const;
const VERSIONS = { session: "version", user: "user_version", app: "app_version" } as const;

interface Props {
  owner: Owner;
  thread: string;
  /** Another number reads it again. */
  round: number;
}

export function StatePanel({ owner, thread, round }: Props) {
  const { t } = useWords();
  const named = { app_name: owner.app, user_id: owner.user };
  const route = `api/threads/${path(thread)}/state`;
  const state = useLoad(
    (api, signal) => api.get<Schemas["StateView"]>(route, named, signal),
    ["state", owner, thread],
  );
  const history = usePages(
    (api, cursor, signal) => api.get<Schemas["StateHistoryView"]>(`${route}/history`, { ...named, limit: 50, cursor }, signal),
    (page) => page.changes,
    ["history", owner, thread],
  );
  useRounds(round, () => {
    state.reload();
    history.reload();
  });
  return (
    <div id="state">
      <Loaded of={state}>
        {(found) => (
          <>
            {SCOPES.map((scope) => (
              <section key={scope} class="scope" data-scope={scope}>
                <h3>
                  {t.conversation.scopes[scope]}{" "}
                  <span class="note">
                    {t.conversation.scopeNotes[scope]} · {t.conversation.version(found[VERSIONS[scope]])}
                  </span>
                </h3>
                <Values values={found[scope]} />
              </section>
            ))}
          </>
        )}
      </Loaded>
      <h3 id="history-title">{t.conversation.history}</h3>
      <ol id="history" aria-labelledby="history-title">
        {history.rows.map((change) => (
          <li key={change.event_id}>
            <p class="note">
              <strong>#{change.sequence_num}</strong>{" "}
              {t.conversation.changedBy(change.event_type, change.author)} <Time value={change.created_at} />
            </p>
            <Values values={change.delta} />
          </li>
        ))}
      </ol>
      {history.error && <ErrorBox error={history.error} retry={history.retry} />}
      {!history.loading && history.rows.length === 0 && !history.error && <p class="note">{t.conversation.noChanges}</p>}
      {history.hasMore && history.rows.length > 0 && (
        <Button small onClick={history.more}>
          {t.conversation.earlierChanges}
        </Button>
      )}
    </div>
  );
}

function Values({ values }: { values: Record<string, unknown> }) {
  const { t } = useWords();
  const keys = Object.keys(values).sort();
  if (keys.length === 0) return <p class="note">{t.conversation.empty}</p>;
  return (
    <dl class="pairs values">
      {keys.flatMap((key) => [
        <dt key={`${key} name`}>
          <code dir="auto">{key}</code>
        </dt>,
        <dd key={key}>
          <pre dir="auto">{json(values[key])}</pre>
        </dd>,
      ])}
    </dl>
  );
}
