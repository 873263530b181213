// How facts are read: whom they are about, what about them, and what they say.

import type { Schemas } from "../../core/api";
import { json, valueText } from "../../ui/basics";

export type Fact = Schemas["FactView"];

export interface Subject {
  name: string;
  facts: Fact[];
}

interface Told {
  text?: unknown;
  subject?: unknown;
}

function told(value: unknown): Told {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Told) : {};
}

/** What a value says: its text if it has one. */
export function saying(value: unknown): string {
  const { text } = told(value);
  return typeof text === "string" ? text : valueText(value);
}

/** What a value says beside its text, such as when. */
export function details(value: unknown): [string, string][] {
  return typeof told(value).text === "string"
    ? Object.entries(told(value))
        .filter(([name]) => name !== "text" && name !== "subject")
        .map(([name, each]) => [name, typeof each === "string" ? each : json(each)])
    : [];
}

/** Whom a fact is about: its value says so, or the first part of its key does; else the user. */
export function subjectOf(fact: Pick<Fact, "key" | "value">, user: string): string {
  const { subject } = told(fact.value);
  if (typeof subject === "string" && subject) return subject;
  const [first, ...rest] = fact.key.split(":");
  return rest.length > 1 && first ? first : user;
}

/** What a key is about, without its subject and the words that tell its elements apart. */
export function topicOf(key: string): string {
  const parts = key.split(":");
  return (parts[1] || key).replaceAll("_", " ");
}

/** Group facts by their subjects, those with the most facts first; within one, by topic. */
export function bySubject(facts: readonly Fact[], user: string): Subject[] {
  const groups = new Map<string, Subject>();
  for (const fact of facts) {
    const name = subjectOf(fact, user);
    const folded = name.toLowerCase();
    const group = groups.get(folded) ?? { name, facts: [] };
    group.facts.push(fact);
    groups.set(folded, group);
  }
  const found = [...groups.values()];
  for (const group of found) group.facts.sort((one, other) => topicOf(one.key).localeCompare(topicOf(other.key)));
  return found.sort((one, other) => other.facts.length - one.facts.length);
}
