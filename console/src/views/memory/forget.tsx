// Erasure on request: first what it would reach, then the proof of what it did.

import { useState } from "preact/hooks";

import { type Api, type Schemas, SLOW_MS, userPath } from "../../core/api";
import { useAction, useLoad } from "../../core/hooks";
import { useWords } from "../../i18n";
import { Button, Dialog, ErrorBox, Loaded } from "../../ui/basics";
import { Table } from "../../ui/table";
import type { Owner } from ".";

type What = { whole_user: true } | { memory_id: string } | { session_id: string; sequence_nums?: number[] };

interface Props {
  owner: Owner;
  what: What;
  close: () => void;
  done: () => void;
  /** Called when the dialog with the proof is closed. */
  gone?: () => void;
}

export function ForgetDialog({ owner: { app, user }, what, close, done, gone }: Props) {
  const { t } = useWords();
  const [typed, setTyped] = useState("");
  const [proof, setProof] = useState<Schemas["ErasureView"] | null>(null);
  const route = userPath(app, user, "forget");
  const preview = useLoad(
    (api, signal) => api.post<Schemas["ForgetView"]>(route, { ...what, dry_run: true, limit: 3 }, { signal }),
    ["forget", app, user, what],
  );
  const forget = useAction(
    (api: Api) => api.post<Schemas["ForgetView"]>(route, what, { timeoutMs: SLOW_MS }),
    ({ erasure }) => {
      if (erasure) setProof(erasure);
    },
  );
  const needsName = "whole_user" in what;
  const leave = () => {
    close();
    // Not before: what is read again then exists no more, and would take this dialog with it.
    if (proof === null) return;
    done();
    gone?.();
  };
  return (
    <Dialog
      title={proof ? t.memory.forgotten : needsName ? t.memory.forgetUserTitle(user) : t.memory.forgetTitle}
      close={leave}
      footer={
        proof ? (
          <Button kind="primary" onClick={leave}>
            {t.common.close}
          </Button>
        ) : (
          <>
            <Button onClick={leave}>{t.common.cancel}</Button>
            <Button kind="danger" disabled={forget.busy || preview.data === null || (needsName && typed !== user)} onClick={forget.run}>
              {t.memory.forgetForGood}
            </Button>
          </>
        )
      }
    >
      {proof ? (
        <Proof proof={proof} />
      ) : (
        <>
          <p>{t.memory.forgetNote}</p>
          <Loaded of={preview}>{(found) => <Reached tables={found.would_forget ?? []} />}</Loaded>
          {needsName && (
            <label class="field">
              <span class="label">{t.memory.typeName(user)}</span>
              <input value={typed} autocomplete="off" onInput={(event) => setTyped(event.currentTarget.value)} />
            </label>
          )}
          {forget.error && <ErrorBox error={forget.error} />}
        </>
      )}
    </Dialog>
  );
}

function Reached({ tables }: { tables: Schemas["TablePreviewView"][] }) {
  const { t, number } = useWords();
  const reached = tables.filter((each) => each.rows > 0);
  if (reached.length === 0) return <p class="note">{t.memory.reachesNothing}</p>;
  return (
    <Table
      class="reached"
      label={t.memory.reaches}
      rows={reached}
      keyOf={(each) => each.table_name}
      columns={[
        { title: t.memory.table, cell: (each) => <code>{each.table_name}</code> },
        { title: t.memory.rows, isNumber: true, cell: (each) => number(each.rows) },
        { title: t.memory.sample, isText: true, cell: (each) => each.sample.map(sampleText).filter(Boolean).join(" · ") },
      ]}
    />
  );
}

function sampleText(row: Record<string, unknown>): string {
  const text = row.content ?? row.session_id ?? row.id;
  const shown = typeof text === "string" ? text : JSON.stringify(text ?? "");
  return shown.length > 80 ? `${shown.slice(0, 80)}…` : shown;
}

function Proof({ proof }: { proof: Schemas["ErasureView"] }) {
  const { t, number, time } = useWords();
  const remaining = Object.entries(proof.remaining).filter(([, rows]) => rows > 0);
  return (
    <>
      <p role="status">
        {proof.finished_at === null
          ? t.memory.erasureContinues
          : remaining.length === 0
            ? t.memory.nothingRemains
            : t.memory.remains(remaining.map(([name, rows]) => `${name} ${rows}`).join(", "))}
      </p>
      <dl class="pairs">
        {Object.entries(proof.counts)
          .filter(([, rows]) => rows > 0)
          .map(([name, rows]) => (
            <>
              <dt key={`${name} name`}>
                <code>{name}</code>
              </dt>
              <dd key={name}>{t.memory.erasedRows(number(rows))}</dd>
            </>
          ))}
        <dt>{t.memory.proof}</dt>
        <dd>
          <code>{proof.id}</code>
        </dd>
        <dt>{t.memory.requested}</dt>
        <dd>{time(proof.requested_at)}</dd>
      </dl>
    </>
  );
}
