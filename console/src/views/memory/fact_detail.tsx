// One fact: what it says, its history on two clocks, where it comes from.

import { type Schemas, userPath } from "../../core/api";
import { useLoad } from "../../core/hooks";
import { useWords } from "../../i18n";
import { Badge, Loaded, Time, type Tone } from "../../ui/basics";
import { type Lane, type Span, Timeline } from "../../ui/charts";
import type { Moment, Owner } from ".";
import { Actions, Detail, Origins, useOrigins } from "./parts";
import { details, saying, topicOf } from "./subjects";

type Version = Schemas["FactVersionView"];

interface Props {
  owner: Owner;
  type: string;
  name: string;
  moment: Moment;
  round: number;
  changed: () => void;
  close: () => void;
}

const TONES: Record<Version["outcome"], Tone> = {
  current: "accent",
  superseded: "plain",
  out_of_order: "plain",
  candidate: "warn",
  retracted: "bad",
};

export function FactDetail({ owner, type, name, moment, round, changed, close }: Props) {
  const { t, number } = useWords();
  const history = useLoad(
    (api, signal) => api.get<Schemas["FactHistoryView"]>(userPath(owner.app, owner.user, "facts", type, name, "history"), {}, signal),
    ["history", owner, type, name],
    { round },
  );
  const current = history.data?.versions.find((each) => each.outcome === "current") ?? null;
  const origins = useOrigins(owner, history.data?.versions[0]?.fact_id ?? null, round);
  return (
    <Detail title={topicOf(name)} close={close}>
      <p class="note">
        <code dir="auto">{name}</code> · {type}
      </p>
      <Loaded of={history}>
        {({ versions }) => {
          const shown = current ?? versions[0];
          if (!shown) return null;
          return (
            <>
              <p class="statement" dir="auto">
                {saying(shown.value)}
              </p>
              <dl class="pairs">
                <dt>{t.memory.trueSince}</dt>
                <dd>
                  <Time value={shown.valid_from} />
                </dd>
                <dt>{t.memory.knownSince}</dt>
                <dd>
                  <Time value={shown.recorded_at} />
                </dd>
                <dt>{t.memory.confidence}</dt>
                <dd>{number(shown.confidence, 2)}</dd>
                {details(shown.value).map(([each, text]) => (
                  <>
                    <dt key={`${each} name`}>{each}</dt>
                    <dd key={each} dir="auto">
                      {text}
                    </dd>
                  </>
                ))}
                {shown.written_by !== null && (
                  <>
                    <dt>{t.memory.writtenBy}</dt>
                    <dd>{shown.written_by || t.common.unknown}</dd>
                  </>
                )}
                {shown.confirmed_at && (
                  <>
                    <dt>{t.memory.confirmed}</dt>
                    <dd>
                      <Time value={shown.confirmed_at} /> {shown.confirmed_by}
                    </dd>
                  </>
                )}
              </dl>
              {current && (
                <Actions
                  owner={owner}
                  id={current.fact_id}
                  text={saying(current.value)}
                  valueOf={(text) => corrected(current.value, text)}
                  changed={changed}
                  gone={close}
                />
              )}
              <h3>{t.memory.history}</h3>
              <TwoClocks versions={versions} moment={moment} />
              <ol class="versions">
                {versions.map((each, index) => (
                  <li key={`${each.recorded_at} ${index}`}>
                    <Badge tone={TONES[each.outcome]}>{t.memory.outcomes[each.outcome]}</Badge> <span dir="auto">{saying(each.value)}</span>
                    <p class="note">
                      {t.memory.trueSince} <Time value={each.valid_from} />
                      {each.valid_until && (
                        <>
                          {" – "}
                          <Time value={each.valid_until} />
                        </>
                      )}{" "}
                      · {t.memory.knownSince} <Time value={each.recorded_at} />
                    </p>
                  </li>
                ))}
              </ol>
            </>
          );
        }}
      </Loaded>
      <h3>{t.memory.comesFrom}</h3>
      <Origins owner={owner} of={origins} />
    </Detail>
  );
}

/** A corrected text keeps the rest of a value that has one. */
function corrected(value: unknown, text: string): unknown {
  if (typeof value === "object" && value !== null && "text" in value) return { ...value, text };
  if (typeof value === "string") return text;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

/** One lane for when each statement was true, one for when it was known. */
function TwoClocks({ versions, moment }: { versions: readonly Version[]; moment: Moment }) {
  const { t, date } = useWords();
  const kept = versions.filter((each) => each.outcome !== "candidate");
  const now = Date.now();
  const ends = kept.flatMap((each) => [each.valid_from, each.valid_until]).flatMap((each) => (each === null ? [] : [Date.parse(each)]));
  const valid = lane("valid", t.memory.wasTrue, kept, now, (each) => [each.valid_from, each.valid_until]);
  const known = lane("known", t.memory.wasKnown, kept, now, (each) => [each.recorded_at, each.superseded_at]);
  const recorded = kept.map((each) => Date.parse(each.recorded_at));
  const from = Math.min(...ends, ...recorded, now);
  return (
    <Timeline
      label={t.memory.history}
      lanes={[valid, known]}
      from={from - (now - from) * 0.02}
      to={Math.max(...ends, now)}
      at={moment.asOf ? Date.parse(moment.asOf) : now}
      format={date}
    />
  );
}

function lane(
  key: string,
  name: string,
  versions: readonly Version[],
  now: number,
  of: (version: Version) => [string, string | null],
): Lane {
  const spans = versions.map((each, index): Span => {
    const [from, until] = of(each);
    return {
      key: `${key} ${index}`,
      from: Date.parse(from),
      to: until === null ? now : Date.parse(until),
      open: until === null,
      text: saying(each.value),
      tone: TONES[each.outcome],
    };
  });
  return { key, name, spans };
}
