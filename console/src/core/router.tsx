// Addresses: every view is a query of the one page, such as ?view=memory&app=shop&user=mei. Back and Forward work, and a
// link leads to the same view.

import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

const listeners = new Set<() => void>();

/** What an address says; null removes a part of it. */
export type Changes = Record<string, string | number | null | undefined>;

export class Address {
  readonly #query: URLSearchParams;

  constructor(search: string) {
    this.#query = new URLSearchParams(search);
  }

  get(name: string): string | null {
    return this.#query.get(name) || null;
  }

  get app(): string | null {
    return this.get("app");
  }

  get user(): string | null {
    return this.get("user");
  }

  /** The named view, or the one that an address without a name means. */
  get view(): string {
    if (this.get("thread") && !this.get("view")) return "conversation";
    return this.get("view") ?? (this.app && this.user ? "memory" : "start");
  }

  /** The address with changes, as a link. */
  with(changes: Changes): string {
    const query = new URLSearchParams(this.#query);
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") query.delete(name);
      else query.set(name, String(value));
    }
    return `?${query}`;
  }
}

/** The link to a view, with nothing of the current address. */
export function linkTo(view: string, changes: Changes = {}): string {
  return new Address("").with({ view, ...changes });
}

export function go(link: string, options: { replace?: boolean } = {}): void {
  if (link === location.search) return;
  if (options.replace) history.replaceState(null, "", link);
  else history.pushState(null, "", link);
  for (const listener of listeners) listener();
}

export function useAddress(): Address {
  const [search, setSearch] = useState(location.search);
  useEffect(() => {
    const update = () => setSearch(location.search);
    listeners.add(update);
    window.addEventListener("popstate", update);
    update();
    return () => {
      listeners.delete(update);
      window.removeEventListener("popstate", update);
    };
  }, []);
  return new Address(search);
}

interface LinkProps {
  to: string;
  children?: ComponentChildren;
  class?: string | undefined;
  id?: string | undefined;
  title?: string | undefined;
  dir?: "auto" | undefined;
  "aria-current"?: "page" | "true" | undefined;
  "aria-label"?: string | undefined;
}

/** A link within the page. */
export function Link({ to, children, ...rest }: LinkProps) {
  return (
    <a
      {...rest}
      href={to}
      onClick={(event) => {
        if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
        event.preventDefault();
        go(to);
      }}
    >
      {children}
    </a>
  );
}
