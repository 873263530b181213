// What is remembered of a user: facts, memories and the archive, now or as of another day.

import { useEffect, useState } from "preact/hooks";

import { type Schemas, userPath } from "../../core/api";
import { useLoad, useSettled } from "../../core/hooks";
import { type Address, go, linkTo, useAddress } from "../../core/router";
import { useMay } from "../../core/session";
import { useWords } from "../../i18n";
import { Button, Tabs, ViewHead } from "../../ui/basics";
import type { ViewProps } from "../registry";
import { ArchiveList } from "./archive";
import { FactDetail } from "./fact_detail";
import { FactList } from "./facts";
import { ForgetDialog } from "./forget";
import { MemoryList } from "./memories";
import { MemoryDetail } from "./memory_detail";

export type Owner = ViewProps;
/** The time that the page shows, as its two clocks; null is now. */
export interface Moment {
  asOf: string | null;
  knownAt: string | null;
}

const DAY_MS = 86_400_000;
const TABS = ["facts", "memories", "archive"] as const;

export function Memory({ app, user }: ViewProps) {
  const { t } = useWords();
  const may = useMay();
  const address = useAddress();
  const [forgetting, setForgetting] = useState(false);
  // Counts the changes that were made here: lists are read again after each.
  const [round, setRound] = useState(0);
  const tab = TABS.find((each) => each === address.get("tab")) ?? "facts";
  const asOf = dayIn(address);
  const moment: Moment = { asOf: endOfDay(asOf), knownAt: address.get("known") === "then" ? endOfDay(asOf) : null };
  const key = address.get("key");
  const type = address.get("type");
  const id = address.get("id");
  const owner = { app, user };
  const changed = () => setRound((last) => last + 1);
  const close = () => go(address.with({ key: null, type: null, id: null }));
  return (
    <>
      <ViewHead
        title={<bdi>{user}</bdi>}
        lead={t.memory.lead}
        actions={
          may("admin") && (
            <Button kind="danger" onClick={() => setForgetting(true)}>
              {t.memory.forgetUser}
            </Button>
          )
        }
      />
      <Clocks owner={owner} />
      <Tabs
        label={t.memory.title}
        items={TABS.map((each) => ({
          to: linkTo("memory", { app, user, tab: each, as_of: asOf, known: address.get("known") }),
          text: t.memory.tabs[each],
          current: tab === each,
        }))}
      />
      <div class={key || id ? "columns with-detail" : "whole"}>
        <div>
          {tab === "facts" && <FactList owner={owner} moment={moment} round={round} />}
          {tab === "memories" && <MemoryList owner={owner} moment={moment} round={round} />}
          {tab === "archive" && <ArchiveList owner={owner} round={round} changed={changed} />}
        </div>
        {key && type && (
          <FactDetail key={`${type} ${key}`} owner={owner} type={type} name={key} moment={moment} round={round} changed={changed} close={close} />
        )}
        {id && <MemoryDetail key={id} owner={owner} id={id} round={round} changed={changed} close={close} />}
      </div>
      {forgetting && <ForgetDialog owner={owner} what={{ whole_user: true }} close={() => setForgetting(false)} done={changed} />}
    </>
  );
}

/** The day that an address names; null if it names none that exists. */
function dayIn(address: Address): string | null {
  const text = address.get("as_of") ?? "";
  const at = Date.parse(`${text}T12:00:00`);
  return Number.isFinite(at) && dayOf(at) === text ? text : null;
}

/** The last moment of a day, so that what was said on it is included; the API takes times with a zone. */
function endOfDay(day: string | null): string | null {
  if (day === null) return null;
  return new Date(new Date(`${day}T00:00:00`).getTime() + DAY_MS - 1).toISOString();
}

function dayOf(ms: number): string {
  const at = new Date(ms);
  return `${at.getFullYear()}-${String(at.getMonth() + 1).padStart(2, "0")}-${String(at.getDate()).padStart(2, "0")}`;
}

/** The slider over the whole page: as of which day, and as it was known when. */
function Clocks({ owner: { app, user } }: { owner: Owner }) {
  const { t, date } = useWords();
  const address = useAddress();
  const chosen = dayIn(address);
  const first = useLoad(
    async (api, signal) => {
      const page = await api.get<Schemas["FactPageView"]>(userPath(app, user, "facts"), { limit: 1000 }, signal);
      return Math.min(Date.now() - 30 * DAY_MS, ...page.facts.map((each) => Date.parse(each.valid_from ?? "") || Date.now()));
    },
    ["first", app, user],
  );
  const today = Math.floor(Date.now() / DAY_MS);
  const from = Math.floor((first.data ?? Date.now() - 30 * DAY_MS) / DAY_MS);
  const position = chosen === null ? today : Math.round(Date.parse(`${chosen}T12:00:00`) / DAY_MS - 0.5);
  // Where a hand holds the slider, until it rests there.
  const [held, setHeld] = useState<number | null>(null);
  const value = held ?? position;
  const settled = useSettled(held, 120);
  useEffect(() => {
    if (settled === null || settled !== held) return;
    setHeld(null);
    const asOf = settled >= today ? null : dayOf((settled + 0.5) * DAY_MS);
    go(address.with({ as_of: asOf, known: asOf && address.get("known") }), { replace: true });
  }, [settled]);
  const text = value >= today ? t.common.now : date((value + 0.5) * DAY_MS);
  return (
    <div class="clocks panel">
      <label class="clock-slider">
        <span class="label">{t.memory.asOf}</span>
        <input
          type="range"
          min={from}
          max={today}
          value={value}
          disabled={first.loading && first.data === null}
          aria-valuetext={text}
          onInput={(event) => setHeld(Number(event.currentTarget.value))}
        />
        <output>{text}</output>
      </label>
      {chosen && (
        <>
          <label class="check">
            <input
              type="checkbox"
              checked={address.get("known") === "then"}
              onChange={(event) => go(address.with({ known: event.currentTarget.checked ? "then" : null }))}
            />
            {t.memory.knownThen}
          </label>
          <Button small onClick={() => go(address.with({ as_of: null, known: null }))}>
            {t.memory.backToNow}
          </Button>
        </>
      )}
    </div>
  );
}
