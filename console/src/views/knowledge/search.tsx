// What a user finds in a corpus: passages with the parts of their scores, or an answer with its citations.

import { useState } from "preact/hooks";

import { type Schemas, SLOW_MS, userPath } from "../../core/api";
import { useLoad, useTyped } from "../../core/hooks";
import { go, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { AddressField } from "../../ui/address_field";
import { Badge, Button, Empty, Field, Folded, Loaded, Meter, Panel } from "../../ui/basics";
import { Bars } from "../../ui/charts";
import type { Place } from ".";

type Hit = Schemas["KnowledgeHitView"];
type Citation = Schemas["KnowledgeCitationView"];

const LIMIT = 20;
/** Characters that are shown before and after a passage. */
const AROUND = 400;

export function KnowledgeSearch({ place }: { place: Place }) {
  const { t } = useWords();
  const address = useAddress();
  const query = address.get("q") ?? "";
  const isAnswer = address.get("mode") === "ask";
  const [text, setText] = useTyped(query);
  const roles = (address.get("roles") ?? "")
    .split(",")
    .map((each) => each.trim())
    .filter(Boolean);
  if (place.user === null) return <Empty title={t.knowledge.nobody}>{t.knowledge.nobodyNote}</Empty>;
  const asked = { ...place, user: place.user, roles, query };
  return (
    <>
      <form
        class="query-form"
        role="search"
        onSubmit={(event) => {
          event.preventDefault();
          const isAsked = (event.submitter as HTMLButtonElement | null)?.value === "ask";
          go(address.with({ q: text.trim(), mode: isAsked ? "ask" : null }));
        }}
      >
        <Field label={t.search.query} hideLabel type="search" placeholder={t.knowledge.placeholder} value={text} onValue={setText} maxLength={8192} />
        <Button type="submit" kind="primary" value="search">
          {t.search.submit}
        </Button>
        <Button type="submit" value="ask">
          {t.knowledge.ask}
        </Button>
      </form>
      <AddressField label={t.knowledge.roles} name="roles" />
      {query === "" ? (
        <Empty title={t.search.noQuery}>{t.knowledge.noQueryNote}</Empty>
      ) : isAnswer ? (
        <Answer of={asked} />
      ) : (
        <Hits of={asked} />
      )}
    </>
  );
}

interface Asked {
  app: string;
  corpus: string;
  user: string;
  roles: string[];
  query: string;
}

function Hits({ of }: { of: Asked }) {
  const { t } = useWords();
  const body = { query: of.query, corpora: [of.corpus], roles: of.roles, limit: LIMIT };
  const found = useLoad(
    (api, signal) => api.post<Schemas["KnowledgeResponseView"]>(userPath(of.app, of.user, "knowledge", "search"), body, { signal }),
    ["knowledge", of],
  );
  return (
    <Loaded of={found}>
      {(data) => (
        <>
          {data.degraded && <p class="notice">{data.degraded}</p>}
          {data.hits.length === 0 ? (
            <Empty title={t.search.noResults}>{t.knowledge.noHitsNote}</Empty>
          ) : (
            <>
              <p class="note result-count">{t.search.found(data.hits.length, data.total_count)}</p>
              <ol class="results" aria-label={t.search.tabs.results}>
                {data.hits.map((each, index) => (
                  <HitRow key={each.id} of={of} hit={each} rank={index + 1} best={data.hits} />
                ))}
              </ol>
            </>
          )}
        </>
      )}
    </Loaded>
  );
}

function HitRow({ of, hit, rank, best }: { of: Asked; hit: Hit; rank: number; best: readonly Hit[] }) {
  const { t, number } = useWords();
  const words = Math.max(...best.map((each) => each.bm25), Number.MIN_VALUE);
  return (
    <li class="result panel">
      <div class="result-head">
        <span class="rank">{rank}</span>
        <Where of={hit} />
        <span class="result-score">
          <Meter value={hit.score} label={t.search.score} />
        </span>
      </div>
      <Folded text={hit.content} class="result-text" />
      <p class="note">{hit.matched_terms.length > 0 && t.search.words(hit.matched_terms.join(", "))}</p>
      <Bars
        label={t.search.parts}
        bars={[
          { name: t.knowledge.words, value: hit.bm25 / words, text: number(hit.bm25, 2) },
          {
            name: t.knowledge.meaning,
            value: Math.max(hit.similarity ?? 0, 0),
            text: hit.similarity === null ? t.common.none : number(hit.similarity, 3),
          },
          { name: t.search.relevance, value: hit.relevance_score, text: number(hit.relevance_score, 3) },
        ]}
      />
      <Around of={of} place={hit} />
    </li>
  );
}

function Answer({ of }: { of: Asked }) {
  const { t, number } = useWords();
  const body = { question: of.query, corpora: [of.corpus], roles: of.roles };
  const found = useLoad(
    (api, signal) =>
      api.post<Schemas["KnowledgeAnswerView"]>(userPath(of.app, of.user, "knowledge", "ask"), body, { signal, timeoutMs: SLOW_MS }),
    ["knowledge answer", of],
  );
  return (
    <Loaded of={found}>
      {(answer) => (
        <>
          {answer.degraded && <p class="notice">{answer.degraded}</p>}
          <Panel
            title={t.knowledge.answer}
            aside={answer.answered_by === "passages" ? t.knowledge.byPassages : (answer.model ?? "")}
            class="answer"
          >
            <p class="statement" dir="auto">
              {answer.text}
            </p>
            {!answer.is_known && <Badge tone="warn">{t.knowledge.notKnown}</Badge>}
            {answer.usage.prompt_tokens + answer.usage.output_tokens > 0 && (
              <p class="note">{t.conversation.tokens(number(answer.usage.prompt_tokens), number(answer.usage.output_tokens))}</p>
            )}
          </Panel>
          <ol class="results" aria-label={t.knowledge.citations}>
            {answer.citations.map((each, index) => (
              <li key={each.id} class="result panel">
                <div class="result-head">
                  <span class="rank">{index + 1}</span>
                  <Where of={each} />
                </div>
                <Folded text={each.text} class="result-text" />
                <Around of={of} place={each} />
              </li>
            ))}
          </ol>
        </>
      )}
    </Loaded>
  );
}

/** The document, its section and its page. */
function Where({ of }: { of: Hit | Citation }) {
  const { t } = useWords();
  return (
    <span>
      <strong dir="auto">{of.title}</strong>{" "}
      <span class="note" dir="auto">
        {[of.source_uri, ...of.heading_path].join(" › ")} · {t.knowledge.versionOf(of.version)}
        {of.page !== null && ` · ${t.knowledge.page(of.page)}`}
      </span>
    </span>
  );
}

/** The passage within the text of its document. */
function Around({ of, place }: { of: Asked; place: Hit | Citation }) {
  const { t } = useWords();
  const [open, setOpen] = useState(false);
  const from = Math.max(0, place.char_from - AROUND);
  const route = userPath(of.app, of.user, "documents", place.document_id, "text");
  const roles = of.roles.map((each) => `role=${encodeURIComponent(each)}`).join("&");
  const text = useLoad(
    open
      ? (api, signal) =>
          api.get<Schemas["DocumentTextView"]>(
            `${route}?char_from=${from}&length=${place.char_upto + AROUND - from}&version=${place.version}${roles && `&${roles}`}`,
            {},
            signal,
          )
      : null,
    ["around", of, place.id, open],
  );
  return (
    <>
      <p class="result-actions">
        <Button kind="quiet" small aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? t.knowledge.hideAround : t.knowledge.showAround}
        </Button>
      </p>
      {open && (
        <Loaded of={text}>
          {({ content }) => {
            // Positions count characters of the text, of which JavaScript counts some as two.
            const characters = [...content];
            const start = place.char_from - from;
            const end = place.char_upto - from;
            return (
              <pre class="around" dir="auto">
                {characters.slice(0, start).join("")}
                <mark>{characters.slice(start, end).join("")}</mark>
                {characters.slice(end).join("")}
              </pre>
            );
          }}
        </Loaded>
      )}
    </>
  );
}
