// The page's words. `en` defines which there are, and the type of `zh` makes it complete.

import { type ComponentChildren, createContext } from "preact";
import { useContext, useEffect, useMemo, useState } from "preact/hooks";

import { keepLanguage, type Language, language } from "../core/theme";
import { en } from "./en";
import { zh } from "./zh";

export type Messages = typeof en;

const ALL: Record<Language, Messages> = { en, zh };

export interface Words {
  t: Messages;
  language: Language;
  choose: (chosen: Language) => void;
  /** 1,234.5 */
  number: (value: number, digits?: number) => string;
  /** An amount in a currency, in as many digits as it takes to see it. */
  money: (amount: number, currency: string) => string;
  /** The time of day if it is today, else the date and the time. */
  time: (value: string | number) => string;
  date: (value: string | number) => string;
  /** The hour and minute of the day. */
  clock: (value: string | number) => string;
  /** Such as "3 days ago" or "in 2 hours". */
  ago: (value: string | number) => string;
}

const WordsContext = createContext<Words | null>(null);

export function MessagesProvider({ children }: { children: ComponentChildren }) {
  const [chosen, setChosen] = useState(language);
  useEffect(() => {
    document.documentElement.lang = chosen === "zh" ? "zh-Hans" : "en";
  }, [chosen]);
  const words = useMemo(() => makeWords(chosen, setChosen), [chosen]);
  return <WordsContext.Provider value={words}>{children}</WordsContext.Provider>;
}

export function useWords(): Words {
  const words = useContext(WordsContext);
  if (words === null) throw new Error("there are no messages here");
  return words;
}

const STEPS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3600],
  ["minute", 60],
  ["second", 1],
];

function makeWords(chosen: Language, setChosen: (chosen: Language) => void): Words {
  // English follows the browser's own region, such as the order of day and month.
  const locale = chosen === "zh" ? "zh-CN" : (navigator.languages.find((each) => each.startsWith("en")) ?? "en");
  const day = new Intl.DateTimeFormat(locale, { dateStyle: "medium" });
  const clock = new Intl.DateTimeFormat(locale, { timeStyle: "medium" });
  const minute = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
  const both = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
  const relative = new Intl.RelativeTimeFormat(locale, { numeric: "auto" });
  return {
    t: ALL[chosen],
    language: chosen,
    choose: (next) => {
      keepLanguage(next);
      setChosen(next);
    },
    number: (value, digits = 0) => value.toLocaleString(locale, { maximumFractionDigits: digits }),
    money: (amount, currency) => amount.toLocaleString(locale, { style: "currency", currency, maximumSignificantDigits: 3 }),
    time: (value) => {
      const at = new Date(value);
      return at.toDateString() === new Date().toDateString() ? clock.format(at) : both.format(at);
    },
    date: (value) => day.format(new Date(value)),
    clock: (value) => minute.format(new Date(value)),
    ago: (value) => {
      const seconds = (new Date(value).getTime() - Date.now()) / 1000;
      const [unit, size] = STEPS.find(([, each]) => Math.abs(seconds) >= each) ?? ["second", 1];
      return relative.format(Math.round(seconds / size), unit);
    },
  };
}
