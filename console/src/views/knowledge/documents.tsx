// The documents of a corpus: what became of each, and adding, ingesting again and removing them.

import { useEffect, useRef, useState } from "preact/hooks";

import { type Api, ApiError, appPath, type Schemas, SLOW_MS } from "../../core/api";
import { useAction, usePages } from "../../core/hooks";
import { go, useAddress } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, Dialog, ErrorBox, Field, Meter, Panel, Time, type Tone } from "../../ui/basics";
import { Table } from "../../ui/table";
import { ListEnd } from "../start";
import type { Place } from ".";

type Document = Schemas["DocumentView"];

const STATUSES = ["waiting", "running", "ready", "failed"] as const;
const TONES: Record<Document["status"], Tone> = { waiting: "warn", running: "live", ready: "good", failed: "bad" };
const POLL_MS = 1500;

export function Documents({ place, changed }: { place: Place; changed: () => void }) {
  const { app, corpus, user } = place;
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const status = STATUSES.find((each) => each === address.get("status")) ?? null;
  const [removing, setRemoving] = useState<Document | null>(null);
  const documents = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["DocumentPageView"]>(appPath(app, "corpora", corpus, "documents"), { user, status, cursor }, signal),
    (page) => page.documents,
    ["documents", place, status],
  );
  const done = () => {
    documents.reload();
    changed();
  };
  // What is on its way is read again until it has arrived.
  const isMoving = documents.rows.some((each) => each.status === "waiting" || each.status === "running");
  const poll = useRef(done);
  poll.current = done;
  useEffect(() => {
    if (!isMoving || documents.loading || documents.error) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && poll.current(), POLL_MS);
    return () => clearInterval(timer);
  }, [isMoving, documents.loading, documents.error]);
  return (
    <>
      <Panel
        title={t.knowledge.documents}
        aside={
          <label>
            <span class="hidden-text">{t.operations.state}</span>
            <select value={status ?? ""} onChange={(event) => go(address.with({ status: event.currentTarget.value }), { replace: true })}>
              <option value="">{t.knowledge.anyStatus}</option>
              {STATUSES.map((each) => (
                <option key={each} value={each}>
                  {t.knowledge.statuses[each]}
                </option>
              ))}
            </select>
          </label>
        }
        flush
      >
        <Table
          id="documents"
          rows={documents.rows}
          keyOf={(each) => each.id}
          columns={[
            {
              title: t.knowledge.document,
              cell: (each) => (
                <>
                  <strong dir="auto">{each.title}</strong>
                  <div class="note" dir="auto">
                    {each.source_uri} · {each.mime_type}
                  </div>
                </>
              ),
            },
            { title: t.operations.state, cell: (each) => <State of={each} /> },
            { title: t.knowledge.version, cell: (each) => <Version of={each} /> },
            { title: t.operations.when, cell: (each) => <Time value={each.updated_at} relative /> },
            ...(may("append")
              ? [
                  {
                    title: t.upkeep.actions,
                    cell: (each: Document) => <Actions place={place} of={each} done={done} remove={() => setRemoving(each)} />,
                  },
                ]
              : []),
          ]}
        />
        <ListEnd
          pages={{ ...documents, loading: documents.loading && documents.rows.length === 0 }}
          isFiltered={false}
          empty={status ? t.knowledge.noSuchDocuments : t.knowledge.noDocuments}
        />
      </Panel>
      {may("append") && <AddDocument place={place} done={done} />}
      {removing && <RemoveDocument place={place} of={removing} close={() => setRemoving(null)} done={done} />}
    </>
  );
}

/** What became of the version that was given last. */
function State({ of }: { of: Document }) {
  const { t, number } = useWords();
  return (
    <>
      <Badge tone={TONES[of.status]}>{t.knowledge.statuses[of.status]}</Badge>
      {of.status === "running" && of.chunks_total !== null && of.chunks_total > 0 && (
        <div class="progress">
          <Meter value={of.chunks_done / of.chunks_total} label={t.knowledge.progress} />
          <span class="note">{t.knowledge.chunksOf(number(of.chunks_done), number(of.chunks_total))}</span>
        </div>
      )}
      {of.status === "failed" && (
        <p class="failed" dir="auto">
          <code>{of.error_code}</code> {of.error}
        </p>
      )}
      {of.status === "ready" && (
        <div class="note">
          {t.knowledge.chunkCount(of.chunks)}
          {of.without_vector > 0 && ` · ${t.knowledge.withoutVector(number(of.without_vector))}`}
        </div>
      )}
    </>
  );
}

/** Which version is searched, and which one it supersedes, or is about to be superseded by. */
function Version({ of }: { of: Document }) {
  const { t } = useWords();
  if (of.version === 0) return <span class="note">{t.knowledge.notSearched}</span>;
  return (
    <>
      {of.version}
      <div class="note">
        {of.last_version > of.version ? t.knowledge.stillSearched(of.last_version) : of.version > 1 ? t.knowledge.supersedes(of.version - 1) : null}
      </div>
    </>
  );
}

function Actions({ place, of, done, remove }: { place: Place; of: Document; done: () => void; remove: () => void }) {
  const { t } = useWords();
  const route = appPath(place.app, "documents", of.id, "retry");
  const retry = useAction((api) => api.post<Document>(route, undefined, { query: { user: place.user } }), done);
  return (
    <>
      <span class="actions">
        {of.status === "failed" && (
          <Button small kind="primary" disabled={retry.busy} onClick={retry.run}>
            {t.knowledge.retry}
          </Button>
        )}
        <Button small kind="danger" aria-label={t.knowledge.removeOf(of.title)} onClick={remove}>
          {t.knowledge.remove}
        </Button>
      </span>
      {retry.error && <ErrorBox error={retry.error} />}
    </>
  );
}

function RemoveDocument({ place, of, close, done }: { place: Place; of: Document; close: () => void; done: () => void }) {
  const { t } = useWords();
  const remove = useAction(
    (api: Api) => {
      const query = new URLSearchParams({ source_uri: of.source_uri, ...(place.user === null ? {} : { user: place.user }) });
      return api.delete(`${appPath(place.app, "corpora", place.corpus, "documents")}?${query}`);
    },
    () => {
      close();
      done();
    },
  );
  return (
    <Dialog
      title={t.knowledge.removeOf(of.title)}
      close={close}
      footer={
        <>
          <Button onClick={close}>{t.common.cancel}</Button>
          <Button kind="danger" disabled={remove.busy} onClick={remove.run}>
            {t.knowledge.removeForGood}
          </Button>
        </>
      }
    >
      <p dir="auto">{of.source_uri}</p>
      <p>{t.knowledge.removeNote}</p>
      {remove.error && <ErrorBox error={remove.error} />}
    </Dialog>
  );
}

/** A text or a file, which replaces the document of the same address. */
function AddDocument({ place, done }: { place: Place; done: () => void }) {
  const { t } = useWords();
  const [uri, setUri] = useState<string | null>(null);
  const [title, setTitle] = useState("");
  const [text, setText] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [said, setSaid] = useState<"none" | "added" | "same">("none");
  const input = useRef<HTMLInputElement>(null);
  // A file brings its name; what was typed stays.
  const address = uri ?? file?.name ?? "";
  const add = useAction(
    async (api: Api) => {
      const content = file ? { content_base64: await base64Of(file) } : { text };
      const route = appPath(place.app, "corpora", place.corpus, "documents");
      return api.post<Schemas["AddedDocumentView"]>(
        route,
        { source_uri: address, title: title || null, ...content },
        { query: { user: place.user }, timeoutMs: SLOW_MS },
      );
    },
    (added) => {
      setSaid(added.is_new ? "added" : "same");
      setUri((now) => (now === uri ? null : now));
      setTitle((now) => (now === title ? "" : now));
      setText((now) => (now === text ? "" : now));
      setFile((now) => (now === file ? null : now));
      if (input.current && (input.current.files?.[0] ?? null) === file) input.current.value = "";
      done();
    },
  );
  return (
    <Panel title={t.knowledge.add} class="spaced">
      <form
        class="filter-fields"
        onSubmit={(event) => {
          event.preventDefault();
          setSaid("none");
          if (address && (file || text)) add.run();
        }}
      >
        <label class="field">
          <span class="label">{t.knowledge.file}</span>
          <input ref={input} type="file" onChange={(event) => setFile(event.currentTarget.files?.[0] ?? null)} />
        </label>
        <label class="field">
          <span class="label">{t.knowledge.orText}</span>
          <textarea rows={4} dir="auto" disabled={file !== null} value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </label>
        <Field label={t.knowledge.uri} value={address} onValue={setUri} maxLength={2048} required />
        <Field label={t.knowledge.documentTitle} value={title} onValue={setTitle} maxLength={500} />
        <Button type="submit" kind="primary" disabled={add.busy || (file === null && text === "")}>
          {t.knowledge.addIt}
        </Button>
      </form>
      <p class="note" role="status">
        {add.busy ? t.common.loading : said === "added" ? t.knowledge.added : said === "same" ? t.knowledge.same : ""}
      </p>
      {add.error && <ErrorBox error={add.error} />}
    </Panel>
  );
}

function base64Of(file: File): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    // "data:…;base64,…"
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,/, ""));
    reader.onerror = () => reject(new ApiError("refused", String(reader.error?.message ?? reader.error)));
    reader.readAsDataURL(file);
  });
}
