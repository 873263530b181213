// From a turn to everything that was extracted from it, and to its erasure.

import { useState } from "preact/hooks";

import { type Schemas, userPath } from "../../core/api";
import { useLoad } from "../../core/hooks";
import { Link, linkTo } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, Loaded, Time } from "../../ui/basics";
import { ForgetDialog } from "../memory/forget";
import type { Owner } from ".";

type Drawn = Schemas["DrawnView"];

export function DrawnPanel({ owner, thread, turn }: { owner: Owner; thread: string; turn: number }) {
  const { t } = useWords();
  const may = useMay();
  const [forgetting, setForgetting] = useState(false);
  const drawn = useLoad(
    (api, signal) =>
      api.get<Schemas["ConsequencesView"]>(userPath(owner.app, owner.user, "sessions", thread, "events", turn, "drawn"), {}, signal),
    ["drawn", owner, thread, turn],
  );
  return (
    <div id="drawn">
      <Loaded of={drawn}>
        {({ event, citing, alongside }) => (
          <>
            <p class="note">
              <bdi>{event.author}</bdi> · #{event.sequence_num} · <Time value={event.occurred_at} />
            </p>
            <p class="turn-text" dir="auto">
              {event.erased_at ? t.memory.erasedTurn : event.text}
            </p>
            {may("admin") && !event.erased_at && (
              <Button small kind="danger" onClick={() => setForgetting(true)}>
                {t.conversation.forgetTurn}
              </Button>
            )}
            <DrawnList owner={owner} title={t.conversation.citing} empty={t.conversation.nothingCites} drawn={citing} />
            <DrawnList owner={owner} title={t.conversation.alongside} empty={t.conversation.nothingAlongside} drawn={alongside} />
          </>
        )}
      </Loaded>
      {forgetting && (
        <ForgetDialog
          owner={owner}
          what={{ session_id: thread, sequence_nums: [turn] }}
          close={() => setForgetting(false)}
          done={drawn.reload}
        />
      )}
    </div>
  );
}

function DrawnList({ owner, title, empty, drawn }: { owner: Owner; title: string; empty: string; drawn: Drawn[] }) {
  const { t } = useWords();
  // A fact and its version in the ledger are the same statement.
  const shown = drawn.filter((each) => each.source !== "fact_version" || !drawn.some((one) => one.source === "fact" && one.id === each.id));
  return (
    <>
      <h3>{title}</h3>
      {shown.length === 0 && <p class="note">{empty}</p>}
      <ul class="turns">
        {shown.map((each) => (
          <li key={each.row_id}>
            <p>
              <Badge>{t.conversation.sources[each.source]}</Badge>{" "}
              <DrawnLink owner={owner} drawn={each} />
            </p>
            <p class="note">
              <Time value={each.recorded_at} /> {each.model}
            </p>
          </li>
        ))}
      </ul>
    </>
  );
}

function DrawnLink({ owner, drawn }: { owner: Owner; drawn: Drawn }) {
  if (drawn.source === "memory") {
    return (
      <Link dir="auto" to={linkTo("memory", { ...owner, tab: "memories", id: drawn.id })}>
        {drawn.content}
      </Link>
    );
  }
  if (drawn.source === "fact" || drawn.source === "fact_version") {
    // Its text is "key: what it says".
    const key = drawn.content.split(": ", 1)[0] ?? "";
    return (
      <Link dir="auto" to={linkTo("memory", { ...owner, type: drawn.kind, key })}>
        {drawn.content.slice(key.length + 2) || drawn.content}
      </Link>
    );
  }
  return <span dir="auto">{drawn.content}</span>;
}
