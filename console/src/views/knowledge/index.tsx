// What the agents of an app look up: corpora, their documents, and what a user finds in them.

import { useState } from "preact/hooks";

import { appPath, type Schemas } from "../../core/api";
import { useAction, useLoad, usePages } from "../../core/hooks";
import { go, Link, linkTo, useAddress } from "../../core/router";
import { useMay } from "../../core/session";
import { type Messages, useWords } from "../../i18n";
import { AddressField } from "../../ui/address_field";
import { Button, Dialog, ErrorBox, Field, Loaded, Panel, Stat, Stats, Tabs, ViewHead } from "../../ui/basics";
import { Table } from "../../ui/table";
import type { ViewProps } from "../registry";
import { ListEnd } from "../start";
import { Documents } from "./documents";
import { KnowledgeSearch } from "./search";

type Corpus = Schemas["CorpusView"];

const TABS = ["documents", "search"] as const;

/** A corpus, and for whom the page acts: a user, or (null) the app itself. */
export interface Place {
  app: string;
  corpus: string;
  user: string | null;
}

export function Knowledge({ app }: ViewProps) {
  const { t } = useWords();
  const address = useAddress();
  const user = address.get("for");
  const corpus = address.get("corpus");
  return (
    <>
      <ViewHead
        title={t.knowledge.title}
        lead={t.knowledge.lead(app)}
        actions={<AddressField label={t.knowledge.actFor} name="for" />}
      />
      {corpus === null ? <Corpora app={app} user={user} /> : <CorpusPanel key={`${corpus} ${user}`} place={{ app, corpus, user }} />}
    </>
  );
}

function Corpora({ app, user }: { app: string; user: string | null }) {
  const { t, number } = useWords();
  const may = useMay();
  const [making, setMaking] = useState(false);
  const corpora = usePages(
    (api, cursor, signal) => api.get<Schemas["CorpusPageView"]>(appPath(app, "corpora"), { user, cursor }, signal),
    (page) => page.corpora,
    ["corpora", app, user],
  );
  return (
    <Panel
      title={t.knowledge.corpora}
      aside={
        may("admin") && (
          <Button small onClick={() => setMaking(true)}>
            {t.knowledge.newCorpus}
          </Button>
        )
      }
      flush
    >
      <Table
        id="corpora"
        rows={corpora.rows}
        keyOf={(each) => `${each.name} ${each.owner}`}
        columns={[
          {
            title: t.knowledge.corpus,
            cell: (each) => (
              <>
                <Link class="name-link" dir="auto" to={linkTo("knowledge", { app, for: each.owner ?? user, corpus: each.name })}>
                  {each.name}
                </Link>
                <div class="note clamped" dir="auto">
                  {each.description}
                </div>
              </>
            ),
          },
          { title: t.knowledge.owner, isText: true, cell: (each) => each.owner ?? t.knowledge.ofTheApp },
          { title: t.knowledge.documents, isNumber: true, cell: (each) => number(each.documents) },
          { title: t.knowledge.chunks, isNumber: true, cell: (each) => number(each.chunks) },
          { title: t.knowledge.readers, isText: true, cell: (each) => grantees(each.readers, each.owner, t) },
        ]}
      />
      <ListEnd pages={corpora} isFiltered={false} empty={t.knowledge.noCorpora} note={t.knowledge.noCorporaNote} />
      {making && (
        <CorpusDialog
          app={app}
          user={user}
          close={() => setMaking(false)}
          done={(made) => go(linkTo("knowledge", { app, for: user, corpus: made.name }))}
        />
      )}
    </Panel>
  );
}

function grantees(names: readonly string[], owner: string | null, t: Messages): string {
  return names.join(", ") || (owner === null ? t.knowledge.onlyApp : t.knowledge.onlyOwner);
}

function CorpusPanel({ place }: { place: Place }) {
  const { app, corpus: name, user } = place;
  const { t, number } = useWords();
  const may = useMay();
  const address = useAddress();
  const [open, setOpen] = useState<"none" | "change" | "remove">("none");
  const tab = TABS.find((each) => each === address.get("tab")) ?? "documents";
  const corpus = useLoad(
    (api, signal) => api.get<Corpus>(appPath(app, "corpora", name), { user }, signal),
    ["corpus", place],
  );
  const isOwn = corpus.data?.owner === user;
  return (
    <>
      <p>
        <Link to={linkTo("knowledge", { app, for: user })}>‹ {t.knowledge.corpora}</Link>
      </p>
      <Panel
        title={<bdi>{name}</bdi>}
        aside={
          may("admin") &&
          isOwn && (
            <>
              <Button small onClick={() => setOpen("change")}>
                {t.knowledge.change}
              </Button>
              <Button small kind="danger" onClick={() => setOpen("remove")}>
                {t.knowledge.remove}
              </Button>
            </>
          )
        }
        class="spaced-below"
      >
        <Loaded of={corpus}>
          {(found) => (
            <>
              {found.description && <p dir="auto">{found.description}</p>}
              <Stats>
                <Stat label={t.knowledge.documents} value={number(found.documents)} />
                <Stat label={t.knowledge.chunks} value={number(found.chunks)} note={`${found.chunking.chunker} ${found.chunking.tokens}`} />
                <Stat label={t.knowledge.readers} value={<span class="small-figure">{grantees(found.readers, found.owner, t)}</span>} />
                <Stat label={t.knowledge.writers} value={<span class="small-figure">{grantees(found.writers, found.owner, t)}</span>} />
              </Stats>
            </>
          )}
        </Loaded>
      </Panel>
      <Tabs
        label={t.knowledge.title}
        items={TABS.map((each) => ({
          to: linkTo("knowledge", { app, for: user, corpus: name, tab: each }),
          text: t.knowledge.tabs[each],
          current: each === tab,
        }))}
      />
      {tab === "documents" && <Documents place={place} changed={corpus.reload} />}
      {tab === "search" && <KnowledgeSearch place={place} />}
      {open === "change" && corpus.data && (
        <CorpusDialog app={app} user={user} of={corpus.data} close={() => setOpen("none")} done={corpus.reload} />
      )}
      {open === "remove" && <RemoveCorpus place={place} close={() => setOpen("none")} />}
    </>
  );
}

interface CorpusDialogProps {
  app: string;
  user: string | null;
  of?: Corpus;
  close: () => void;
  done: (made: Corpus) => void;
}

/** Creates a corpus, or changes what it says and who uses it. */
function CorpusDialog({ app, user, of, close, done }: CorpusDialogProps) {
  const { t } = useWords();
  const [name, setName] = useState(of?.name ?? "");
  // null: not typed. What is not typed is not sent, so that it stays as it is by then.
  const [description, setDescription] = useState<string | null>(null);
  const [readers, setReaders] = useState<string | null>(null);
  const [writers, setWriters] = useState<string | null>(null);
  const save = useAction(
    (api) => {
      const body: Partial<Schemas["CorpusInput"]> = {};
      if (description !== null) body.description = description;
      if (readers !== null) body.readers = named(readers);
      if (writers !== null) body.writers = named(writers);
      return api.put<Corpus>(appPath(app, "corpora", name), body, { query: { user }, onlyNew: of === undefined });
    },
    (made) => {
      close();
      done(made);
    },
  );
  return (
    <Dialog
      title={of ? t.knowledge.changeTitle : t.knowledge.newCorpus}
      close={close}
      footer={
        <>
          <Button onClick={close}>{t.common.cancel}</Button>
          <Button kind="primary" disabled={save.busy || name === ""} onClick={save.run}>
            {t.common.save}
          </Button>
        </>
      }
    >
      {!of && <Field label={t.knowledge.name} value={name} onValue={setName} maxLength={255} />}
      <Field label={t.knowledge.description} value={description ?? of?.description ?? ""} onValue={setDescription} maxLength={2000} />
      <Field
        label={t.knowledge.readersField}
        value={readers ?? of?.readers.join(", ") ?? (user === null ? "*" : "")}
        onValue={setReaders}
      />
      <Field label={t.knowledge.writersField} value={writers ?? of?.writers.join(", ") ?? ""} onValue={setWriters} />
      <p class="note">{t.knowledge.granteesNote}</p>
      {save.error && <ErrorBox error={save.error} />}
    </Dialog>
  );
}

function named(text: string): string[] {
  return text
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
}

function RemoveCorpus({ place: { app, corpus, user }, close }: { place: Place; close: () => void }) {
  const { t } = useWords();
  const [typed, setTyped] = useState("");
  const query = user === null ? "" : `?${new URLSearchParams({ user })}`;
  const remove = useAction(
    (api) => api.delete<Schemas["RemovedCorpusView"]>(appPath(app, "corpora", corpus) + query),
    () => go(linkTo("knowledge", { app, for: user })),
  );
  return (
    <Dialog
      title={t.knowledge.removeCorpusTitle(corpus)}
      close={close}
      footer={
        <>
          <Button onClick={close}>{t.common.cancel}</Button>
          <Button kind="danger" disabled={remove.busy || typed !== corpus} onClick={remove.run}>
            {t.knowledge.removeForGood}
          </Button>
        </>
      }
    >
      <p>{t.knowledge.removeCorpusNote}</p>
      <Field label={t.memory.typeName(corpus)} value={typed} onValue={setTyped} />
      {remove.error && <ErrorBox error={remove.error} />}
    </Dialog>
  );
}
