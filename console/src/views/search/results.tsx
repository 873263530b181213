// Results with the parts of their scores; filters and weights are part of the address.

import { useState } from "preact/hooks";

import { type Schemas, userPath } from "../../core/api";
import { useLoad, useSettled } from "../../core/hooks";
import { type Address, go, Link, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { AddressField } from "../../ui/address_field";
import { Badge, Button, Empty, Folded, Loaded, Meter, Panel, Time } from "../../ui/basics";
import { Bars } from "../../ui/charts";
import { linkToRow } from ".";

type Result = Schemas["ResultView"];
type Weights = Record<(typeof WEIGHTS)[number], number>;

const SOURCES = ["memory", "fact", "message"] as const;
const SCOPES = ["all", "recent", "none"] as const;
const WEIGHTS = ["bm25", "context_bm25", "similarity", "context_similarity", "author", "recency", "retention", "question"] as const;
/** As in `SearchWeights`. */
const DEFAULTS: Weights = {
  bm25: 0.1,
  context_bm25: 1,
  similarity: 0.7,
  context_similarity: 0.4,
  author: 0.5,
  recency: 0.05,
  retention: 0.1,
  question: 0.15,
};
const WEIGHT_MAX = 1.5;
const LIMIT = 20;

function weightsOf(address: Address): Weights {
  const found = { ...DEFAULTS };
  for (const each of (address.get("w") ?? "").split(",")) {
    const [name, value] = each.split(":");
    const known = WEIGHTS.find((weight) => weight === name);
    if (known && value !== undefined && Number.isFinite(Number(value))) found[known] = Math.min(Math.max(Number(value), 0), 1000);
  }
  return found;
}

function weightsText(weights: Weights): string | null {
  const changed = WEIGHTS.filter((name) => weights[name] !== DEFAULTS[name]);
  return changed.map((name) => `${name}:${weights[name]}`).join(",") || null;
}

function sourcesOf(address: Address): string[] {
  const given = (address.get("sources") ?? "").split(",");
  const found = SOURCES.filter((each) => given.includes(each));
  return found.length ? found : [...SOURCES];
}

export function Results({ app, user, query }: { app: string; user: string; query: string }) {
  const { t } = useWords();
  const address = useAddress();
  const weights = weightsOf(address);
  const isAnyWeight = WEIGHTS.some((name) => weights[name] > 0);
  const body = {
    query,
    limit: LIMIT,
    explain: true,
    sources: sourcesOf(address),
    messages: SCOPES.find((each) => each === address.get("messages")) ?? "all",
    session_id: address.get("session"),
    since: day(address.get("since")),
    until: day(address.get("until")),
    min_relevance: Math.min(Math.max(Number(address.get("relevance")) || 0, 0), 1),
    weights: weightsText(weights) === null ? null : weights,
  };
  const found = useLoad(
    isAnyWeight ? (api, signal) => api.post<Schemas["SearchView"]>(userPath(app, user, "search"), body, { signal }) : null,
    ["search", app, user, body],
  );
  return (
    <div class="columns with-filters">
      <div aria-busy={found.loading}>
        {isAnyWeight ? (
          <Loaded of={found}>
            {(data) => (
              <>
                {data.degraded && <p class="notice">{data.degraded}</p>}
                {data.results.length === 0 ? (
                  <Empty title={t.search.noResults}>{t.search.noResultsNote}</Empty>
                ) : (
                  <>
                    <p class="note result-count">{t.search.found(data.results.length, data.total_count)}</p>
                    <ol class="results" aria-label={t.search.tabs.results}>
                      {data.results.map((each, index) => (
                        <Row key={each.memory_id} app={app} user={user} row={each} rank={index + 1} />
                      ))}
                    </ol>
                  </>
                )}
              </>
            )}
          </Loaded>
        ) : (
          <Empty title={t.search.noWeight} />
        )}
      </div>
      <div>
        <Filters address={address} />
        <WeightPanel address={address} weights={weights} />
      </div>
    </div>
  );
}

/** The start of a day of the viewer, as the API takes it. */
function day(text: string | null): string | null {
  if (text === null) return null;
  const at = new Date(`${text}T00:00:00`);
  return Number.isNaN(at.getTime()) ? null : at.toISOString();
}

function Row({ app, user, row, rank }: { app: string; user: string; row: Result; rank: number }) {
  const { t, number } = useWords();
  const [open, setOpen] = useState(rank === 1);
  const parts = Object.entries(row.why.parts ?? {})
    .filter(([, value]) => Math.abs(value) >= 0.0005)
    .sort(([, one], [, other]) => Math.abs(other) - Math.abs(one));
  const most = parts.slice(0, 2).filter(([, value]) => value > 0);
  const key = row.source === "fact" && typeof row.metadata.key === "string" ? row.metadata.key : null;
  const link = linkToRow(app, user, { source: row.source, id: row.memory_id, session: row.session_id, turn: row.from_seq, key, kind: row.memory_type });
  return (
    <li class="result panel">
      <div class="result-head">
        <span class="rank">{rank}</span>
        <Badge tone={row.source === "message" ? "plain" : "accent"}>{t.search.sources[row.source]}</Badge>
        <span class="note">{row.memory_type}</span>
        {row.occurred_at && (
          <span class="note">
            <Time value={row.occurred_at} relative />
          </span>
        )}
        <span class="result-score">
          <Meter value={row.score} label={t.search.score} />
        </span>
      </div>
      <Folded text={row.content} class="result-text" />
      <div class="stack" role="img" aria-label={parts.map(([name, value]) => `${partName(t, name)} ${number(value, 3)}`).join(", ")}>
        {parts
          .filter(([, value]) => value > 0)
          .map(([name, value]) => (
            <span key={name} class={`segment part-${name}`} style={{ width: `${100 * value}%` }} title={`${partName(t, name)} ${number(value, 3)}`} />
          ))}
      </div>
      <p class="note">
        {most.length > 0 && t.search.because(most.map(([name, value]) => `${partName(t, name)} ${number(value, 2)}`).join(", "))}
        {row.why.matched_terms.length > 0 && ` · ${t.search.words(row.why.matched_terms.join(", "))}`}
      </p>
      <div class="result-actions">
        <Button kind="quiet" small aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? t.search.hideWhy : t.search.showWhy}
        </Button>
        {link && <Link to={link}>{row.source === "message" ? t.search.openTurn : t.search.openMemory}</Link>}
      </div>
      {open && (
        <div class="why">
          <Bars
            label={t.search.parts}
            bars={parts.map(([name, value]) => ({
              name: partName(t, name),
              value: Math.abs(value),
              text: number(value, 3),
              tone: value < 0 ? "bad" : "accent",
            }))}
          />
          <dl class="pairs">
            <dt>{t.search.relevance}</dt>
            <dd>{number(row.relevance_score, 3)}</dd>
            <dt>BM25</dt>
            <dd>
              {number(row.why.bm25, 2)} {row.why.text_rank !== null && <span class="note">{t.search.rankBy(row.why.text_rank)}</span>}
            </dd>
            <dt>{t.search.cosine}</dt>
            <dd>
              {row.why.similarity === null ? t.common.none : number(row.why.similarity, 3)}{" "}
              {row.why.vector_rank !== null && <span class="note">{t.search.rankBy(row.why.vector_rank)}</span>}
            </dd>
            {row.session_id && (
              <>
                <dt>{t.search.session}</dt>
                <dd dir="auto">
                  {row.session_id} {row.from_seq !== null && `#${row.from_seq}${row.upto_seq !== row.from_seq ? `–${row.upto_seq}` : ""}`}
                </dd>
              </>
            )}
          </dl>
        </div>
      )}
    </li>
  );
}

function partName(t: ReturnType<typeof useWords>["t"], name: string): string {
  return t.search.partNames[name as keyof typeof t.search.partNames] ?? name;
}

function Filters({ address }: { address: Address }) {
  const { t } = useWords();
  const sources = sourcesOf(address);
  const change = (changes: Record<string, string | null>) => go(address.with(changes), { replace: true });
  return (
    <Panel title={t.search.filters}>
      <div class="filter-fields">
        <fieldset class="checks">
          <legend class="label">{t.search.searchIn}</legend>
          {SOURCES.map((each) => (
            <label key={each} class="check">
              <input
                type="checkbox"
                checked={sources.includes(each)}
                disabled={sources.length === 1 && sources.includes(each)}
                onChange={(event) => {
                  const next = SOURCES.filter((source) => (source === each ? event.currentTarget.checked : sources.includes(source)));
                  change({ sources: next.length === SOURCES.length ? null : next.join(",") });
                }}
              />
              {t.search.sources[each]}
            </label>
          ))}
        </fieldset>
        <label class="field">
          <span class="label">{t.search.turns}</span>
          <select value={address.get("messages") ?? "all"} onChange={(event) => change({ messages: event.currentTarget.value === "all" ? null : event.currentTarget.value })}>
            {SCOPES.map((each) => (
              <option key={each} value={each}>
                {t.search.scopes[each]}
              </option>
            ))}
          </select>
        </label>
        <AddressField label={t.search.session} name="session" />
        <AddressField label={t.search.since} name="since" type="date" />
        <AddressField label={t.search.until} name="until" type="date" />
        <AddressField label={t.search.minRelevance} name="relevance" type="number" min={0} max={1} step={0.05} />
      </div>
    </Panel>
  );
}

function WeightPanel({ address, weights }: { address: Address; weights: Weights }) {
  const { t, number } = useWords();
  const [shown, setShown] = useState(weights);
  const text = weightsText(useSettled(shown, 250));
  const given = weightsText(weights);
  const [last, setLast] = useState(given);
  if (given !== last) {
    // The address has changed: Back, or a link.
    setLast(given);
    if (weightsText(shown) !== given) setShown(weights);
  } else if (text !== given && text === weightsText(shown)) {
    queueMicrotask(() => go(address.with({ w: text }), { replace: true }));
  }
  return (
    <Panel
      title={t.search.weights}
      aside={
        <Button kind="quiet" small disabled={weightsText(shown) === null} onClick={() => setShown(DEFAULTS)}>
          {t.search.reset}
        </Button>
      }
    >
      <ul class="weights">
        {WEIGHTS.map((name) => (
          <li key={name}>
            <label class="check">
              <input
                type="checkbox"
                checked={shown[name] > 0}
                onChange={(event) => setShown({ ...shown, [name]: event.currentTarget.checked ? DEFAULTS[name] : 0 })}
              />
              <span class={`key part-${name}`} aria-hidden="true" />
              {partName(t, name)}
            </label>
            <input
              type="range"
              min="0"
              max={WEIGHT_MAX}
              step="0.05"
              value={Math.min(shown[name], WEIGHT_MAX)}
              aria-label={t.search.weightOf(partName(t, name))}
              onInput={(event) => setShown({ ...shown, [name]: Number(event.currentTarget.value) })}
            />
            <output>{number(shown[name], 2)}</output>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
