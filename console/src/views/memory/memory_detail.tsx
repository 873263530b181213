// One memory: how strong it was, is and will be; how often it was used; where it comes from.

import { type Api, type Schemas, userPath } from "../../core/api";
import { useAction, useLoad } from "../../core/hooks";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Badge, Button, Loaded, Time } from "../../ui/basics";
import { LineChart, type Point } from "../../ui/charts";
import type { Owner } from ".";
import { Actions, Detail, Origins, useOrigins } from "./parts";

type Explanation = Schemas["ExplanationView"];

interface Props {
  owner: Owner;
  id: string;
  round: number;
  changed: () => void;
  close: () => void;
}

const DAY_MS = 86_400_000;
const PAST_POINTS = 24;

export function MemoryDetail({ owner, id, round, changed, close }: Props) {
  const { t, number } = useWords();
  const may = useMay();
  const route = userPath(owner.app, owner.user, "memories", id);
  const explained = useLoad(
    (api, signal) => api.get<Explanation>(`${route}/retention`, {}, signal),
    ["retention", owner, id],
    { round },
  );
  const isPinned = explained.data?.pinned ?? false;
  const pin = useAction((api: Api) => (isPinned ? api.delete(`${route}/pin`) : api.put(`${route}/pin`)), changed);
  const origins = useOrigins(owner, id, round);
  return (
    <Detail title={t.memory.memory} close={close}>
      <Loaded of={explained}>
        {(found) => (
          <>
            <p class="statement" dir="auto">
              {found.content}
            </p>
            <dl class="pairs">
              <dt>{t.memory.kind}</dt>
              <dd>
                {kindText(t.memory.kinds, found.memory_type)} {found.pinned && <Badge tone="accent">{t.memory.pinned}</Badge>}
              </dd>
              <dt>{t.memory.strength}</dt>
              <dd>
                {number(found.score, 3)} = <code>{found.formula}</code>
              </dd>
              <dt>{t.memory.usedTitle}</dt>
              <dd>
                {t.memory.used(found.access_count)}, {t.memory.lastUsed} <Time value={found.last_accessed_at} />
              </dd>
              <dt>{t.memory.fades}</dt>
              <dd>
                {found.falls_below_at ? (
                  <>
                    <Time value={found.falls_below_at} /> (<Time value={found.falls_below_at} relative />)
                  </>
                ) : (
                  t.memory.never
                )}
              </dd>
            </dl>
            <Curve of={found} />
            <Actions owner={owner} id={id} text={found.content} valueOf={(text) => text} changed={changed} gone={close}>
              {may("append") && (
                <Button small disabled={pin.busy} onClick={pin.run} aria-pressed={isPinned}>
                  {isPinned ? t.memory.unpin : t.memory.pin}
                </Button>
              )}
            </Actions>
          </>
        )}
      </Loaded>
      <h3>{t.memory.comesFrom}</h3>
      <Origins owner={owner} of={origins} />
    </Detail>
  );
}

function kindText(kinds: Record<string, string>, kind: string): string {
  return kinds[kind] ?? kind;
}

/** The strength since the last use, and its forecast: the points are the API's, the past is the same curve. */
function Curve({ of }: { of: Explanation }) {
  const { t, date, number } = useWords();
  const now = Date.parse(of.now);
  const idleDays = Math.max(0, (now - Date.parse(of.last_accessed_at)) / DAY_MS);
  const past: Point[] =
    idleDays < 0.01
      ? []
      : Array.from({ length: PAST_POINTS }, (_, index): Point => {
          const days = (idleDays * index) / PAST_POINTS;
          return [days - idleDays, of.pinned ? of.score : strength(of, days)];
        });
  const points = [...past, ...of.points.map(([day, score]): Point => [day, score])];
  return (
    <LineChart
      label={t.memory.curveLabel(number(of.score, 2), of.falls_below_at ? date(of.falls_below_at) : t.memory.never)}
      points={points}
      dashedFrom={0}
      range={[0, 1]}
      levels={[{ value: of.threshold, text: t.memory.threshold }]}
      marks={[{ at: 0, text: t.common.now }]}
      formatX={(days) => date(now + days * DAY_MS)}
      formatY={(value) => number(value, 1)}
    />
  );
}

/** The curves of docs/forgetting.md, some days after the last use. */
function strength(of: Explanation, days: number): number {
  const gain = 1 + Math.log(1 + of.access_count);
  const score =
    of.curve === "classic"
      ? (Math.exp(-of.decay_rate * days) * gain) / 5
      : of.initial_score * Math.exp((-of.decay_rate * days) / gain);
  return Math.min(1, score);
}
