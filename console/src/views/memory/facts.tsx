// Facts by subject, each with its two clocks: since when it holds, and since when that is known.

import { useState } from "preact/hooks";

import { type Schemas, userPath } from "../../core/api";
import { usePages } from "../../core/hooks";
import { Link, linkTo, useAddress } from "../../core/router";
import { useWords } from "../../i18n";
import { Badge, Empty, Field, Panel } from "../../ui/basics";
import { ListEnd } from "../start";
import type { Moment, Owner } from ".";
import { bySubject, type Fact, saying, topicOf } from "./subjects";

const CERTAIN = 0.75;

interface Props {
  owner: Owner;
  moment: Moment;
  round: number;
}

export function FactList({ owner: { app, user }, moment, round }: Props) {
  const { t, date } = useWords();
  const [text, setText] = useState("");
  const facts = usePages(
    (api, cursor, signal) =>
      api.get<Schemas["FactPageView"]>(
        userPath(app, user, "facts"),
        { limit: 500, cursor, as_of: moment.asOf, known_at: moment.knownAt },
        signal,
      ),
    (page) => page.facts,
    ["facts", app, user, moment.asOf, moment.knownAt],
    round,
  );
  const wanted = text.trim().toLowerCase();
  const shown = wanted
    ? facts.rows.filter((each) => `${each.key} ${topicOf(each.key)} ${saying(each.value)}`.toLowerCase().includes(wanted))
    : facts.rows;
  return (
    <>
      <div class="filters list-filter">
        <Field label={t.memory.findFact} hideLabel type="search" placeholder={t.memory.findFact} value={text} onValue={setText} />
        <span class="note" role="status">
          {t.memory.factCount(shown.length)}
          {moment.asOf && ` · ${t.memory.asOfDay(date(moment.asOf))}`}
        </span>
      </div>
      {bySubject(shown, user).map((subject) => (
        <Panel key={subject.name} title={<bdi>{subject.name}</bdi>} aside={t.memory.factCount(subject.facts.length)} flush class="subject">
          <ul class="facts">
            {subject.facts.map((fact, index) => (
              <FactRow key={fact.id} fact={fact} isSameTopic={topicOf(subject.facts[index - 1]?.key ?? "") === topicOf(fact.key)} />
            ))}
          </ul>
        </Panel>
      ))}
      {wanted && facts.rows.length > 0 && shown.length === 0 && !facts.hasMore ? (
        <Empty title={t.memory.noSuchFact}>
          <Link to={linkTo("search", { app, user, q: text.trim() })}>{t.memory.searchIt}</Link>
        </Empty>
      ) : (facts.loading || facts.error || facts.hasMore || shown.length === 0) && (
        <ListEnd pages={{ ...facts, rows: shown }} isFiltered={wanted !== ""} empty={t.memory.noFacts} note={t.memory.noFactsNote} />
      )}
    </>
  );
}

function FactRow({ fact, isSameTopic }: { fact: Fact; isSameTopic: boolean }) {
  const { t, date, number } = useWords();
  const address = useAddress();
  const isCurrent = address.get("key") === fact.key && address.get("type") === fact.fact_type;
  return (
    <li class="fact">
      <span class={isSameTopic ? "topic same" : "topic"} dir="auto">
        {topicOf(fact.key)}
      </span>
      <Link class="fact-text" dir="auto" to={address.with({ type: fact.fact_type, key: fact.key, id: null })} aria-current={isCurrent ? "true" : undefined}>
        {saying(fact.value)}
      </Link>
      <span class="clock-pair note">
        {fact.confidence < CERTAIN && <Badge tone="warn">{t.memory.uncertain(number(fact.confidence, 2))}</Badge>}
        {fact.valid_from && <span title={t.memory.trueSince}>{date(fact.valid_from)}</span>}
        {fact.recorded_at && (
          <span class="recorded" title={t.memory.knownSince}>
            {t.memory.known(date(fact.recorded_at))}
          </span>
        )}
      </span>
    </li>
  );
}
