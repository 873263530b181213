// What the details of facts and memories share: the turns they come from, and what can be done with them.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

import { type Api, type Schemas, userPath } from "../../core/api";
import { type Load, useAction, useLoad, useOpened } from "../../core/hooks";
import { Link, linkTo } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Button, Dialog, Empty, ErrorBox, Loaded, Time } from "../../ui/basics";
import type { Owner } from ".";
import { ForgetDialog } from "./forget";

/** The panel beside a list. Opening it leads there, on narrow screens too. */
export function Detail({ title, close, children }: { title: string; close: () => void; children: ComponentChildren }) {
  const { t } = useWords();
  const element = useOpened<HTMLElement>();
  useEffect(() => element.current?.scrollIntoView({ block: "nearest" }), []);
  return (
    <aside ref={element} class="detail panel" aria-label={title} tabIndex={-1}>
      <header class="panel-head">
        <h2>{title}</h2>
        <Button kind="quiet" small aria-label={t.common.close} onClick={close}>
          ✕
        </Button>
      </header>
      <div class="panel-body">{children}</div>
    </aside>
  );
}

export function useOrigins({ app, user }: Owner, id: string | null, round: number): Load<Schemas["OriginView"]> {
  return useLoad(
    id === null ? null : (api, signal) => api.get<Schemas["OriginView"]>(userPath(app, user, "memories", id, "origin"), {}, signal),
    ["origin", app, user, id],
    { round },
  );
}

/** The very turns that something was extracted from, with links into their conversations. */
export function Origins({ owner: { app, user }, of }: { owner: Owner; of: Load<Schemas["OriginView"]> }) {
  const { t } = useWords();
  return (
    <Loaded of={of}>
      {({ origins }) => {
        const seen = new Set<string>();
        const turns = origins.flatMap(({ drawn, events }) =>
          events
            .filter((event) => drawn.source_seqs.length === 0 || drawn.source_seqs.includes(event.sequence_num))
            .filter((event) => !seen.has(`${drawn.session_id} ${event.id}`) && seen.add(`${drawn.session_id} ${event.id}`))
            .map((event) => ({ event, drawn })),
        );
        const models = [...new Set(origins.map(({ drawn }) => drawn.model).filter(Boolean))];
        return (
          <>
            {turns.length === 0 ? (
              <Empty title={t.memory.noTurns} />
            ) : (
              <ul class="turns">
                {turns.map(({ event, drawn }) => (
                  <li key={`${drawn.session_id} ${event.id}`}>
                    <p class="turn-head note">
                      <bdi>{event.author}</bdi> · <Time value={event.occurred_at} />
                      {drawn.session_id && (
                        <>
                          {" · "}
                          <Link to={linkTo("conversation", { app, user, thread: drawn.session_id, turn: event.sequence_num })}>
                            {t.memory.openTurn}
                          </Link>
                        </>
                      )}
                    </p>
                    <p class="turn-text" dir="auto">
                      {event.text ?? t.memory.erasedTurn}
                    </p>
                  </li>
                ))}
              </ul>
            )}
            {models.length > 0 && <p class="note">{t.memory.extractedBy(models.join(", "))}</p>}
          </>
        );
      }}
    </Loaded>
  );
}

interface ActionsProps {
  owner: Owner;
  id: string;
  /** What it says now, to correct. */
  text: string;
  /** The value to send for a corrected text. */
  valueOf: (text: string) => unknown;
  changed: () => void;
  /** Called when it exists no more. */
  gone: () => void;
  children?: ComponentChildren;
}

/** Confirm, correct, retire and forget, as far as the key allows them. */
export function Actions({ owner, id, text, valueOf, changed, gone, children }: ActionsProps) {
  const { t } = useWords();
  const may = useMay();
  const [open, setOpen] = useState<"none" | "correct" | "forget">("none");
  const route = (act: string) => userPath(owner.app, owner.user, "memories", id, act);
  const confirm = useAction((api: Api) => api.post(route("confirm"), {}), changed);
  const retire = useAction(
    (api: Api) => api.post(route("retire"), {}),
    () => {
      changed();
      gone();
    },
  );
  const error = confirm.error ?? retire.error;
  if (!may("append") && !may("admin")) return null;
  return (
    <>
      <div class="actions">
        {children}
        {may("append") && (
          <Button small disabled={confirm.busy} onClick={confirm.run}>
            {t.memory.confirm}
          </Button>
        )}
        {may("admin") && (
          <>
            <Button small onClick={() => setOpen("correct")}>
              {t.memory.correct}
            </Button>
            <Button small disabled={retire.busy} onClick={retire.run} title={t.memory.retireNote}>
              {t.memory.retire}
            </Button>
            <Button small kind="danger" onClick={() => setOpen("forget")}>
              {t.memory.forget}
            </Button>
          </>
        )}
      </div>
      {error && <ErrorBox error={error} />}
      {open === "correct" && (
        <CorrectDialog route={route("correct")} text={text} valueOf={valueOf} close={() => setOpen("none")} done={changed} gone={gone} />
      )}
      {open === "forget" && <ForgetDialog owner={owner} what={{ memory_id: id }} close={() => setOpen("none")} done={changed} gone={gone} />}
    </>
  );
}

interface CorrectProps {
  route: string;
  text: string;
  valueOf: (text: string) => unknown;
  close: () => void;
  done: () => void;
  gone: () => void;
}

function CorrectDialog({ route, text, valueOf, close, done, gone }: CorrectProps) {
  const { t } = useWords();
  const [value, setValue] = useState(text);
  const save = useAction(
    (api: Api) => api.post<Schemas["EditView"]>(route, { value: valueOf(value) }),
    (edit) => {
      close();
      done();
      // A corrected memory is another row.
      if (edit.kind === "memory") gone();
    },
  );
  return (
    <Dialog
      title={t.memory.correctTitle}
      close={close}
      footer={
        <>
          <Button onClick={close}>{t.common.cancel}</Button>
          <Button kind="primary" disabled={save.busy || value.trim() === "" || value === text} onClick={save.run}>
            {t.common.save}
          </Button>
        </>
      }
    >
      <p class="note">{t.memory.correctNote}</p>
      <label class="field">
        <span class="label">{t.memory.says}</span>
        <textarea rows={4} dir="auto" value={value} onInput={(event) => setValue(event.currentTarget.value)} />
      </label>
      {save.error && <ErrorBox error={save.error} />}
    </Dialog>
  );
}
