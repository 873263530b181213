// A thread's state by scope, and the events that changed it.

import { json, make, moment, settled } from "./dom.js";

const SCOPES = [
  ["session", "Session", "version", "of this thread alone"],
  ["user", "User", "user_version", "of this user, in all threads"],
  ["app", "App", "app_version", "of every user of the app"],
];

export class StatePanel {
  #api;
  #thread;
  #parts;
  #refresh;
  #closed = false;

  /** @param parts {scopes, history, note}: elements. */
  constructor(api, thread, parts, failed) {
    this.#api = api;
    this.#thread = thread;
    this.#parts = parts;
    this.#refresh = settled(() => this.#read().catch(failed), 120);
    parts.scopes.replaceChildren();
    parts.history.replaceChildren();
    this.refresh();
  }

  close() {
    this.#closed = true;
    this.#refresh.cancel();
  }

  refresh() {
    this.#refresh.request();
  }

  async #read() {
    const [state, history] = await Promise.all([this.#api.state(this.#thread), this.#api.history(this.#thread, null)]);
    if (this.#closed) return;
    this.#parts.scopes.replaceChildren(...SCOPES.map((scope) => renderScope(state, ...scope)));
    this.#parts.history.replaceChildren(...history.changes.map(renderChange));
    this.#more(history.next_cursor, history.changes.length === 0);
  }

  #more(cursor, isEmpty) {
    const { note } = this.#parts;
    note.hidden = cursor === null && !isEmpty;
    note.replaceChildren(isEmpty ? "No event has changed the state yet." : "");
    if (cursor === null) return;
    const button = make("button", { type: "button", text: "Show earlier changes" });
    button.onclick = async () => {
      button.disabled = true;
      try {
        const page = await this.#api.history(this.#thread, cursor);
        if (this.#closed) return;
        this.#parts.history.append(...page.changes.map(renderChange));
        this.#more(page.next_cursor, false);
      } catch (error) {
        button.disabled = false;
        button.after(make("span", { class: "failed", role: "alert", text: error.message }));
      }
    };
    note.append(button);
  }
}

function renderScope(state, name, title, version, whose) {
  const keys = Object.keys(state[name]).sort();
  const head = make("h3", { text: title }, make("span", { class: "count", text: `${whose} · version ${state[version]}` }));
  if (keys.length === 0) return make("section", { class: "scope" }, head, make("p", { class: "note", text: "Empty." }));
  const rows = keys.flatMap((key) => [
    make("dt", {}, make("code", { text: key, dir: "auto" })),
    make("dd", {}, make("pre", { text: json(state[name][key]), dir: "auto" })),
  ]);
  return make("section", { class: "scope", "data-scope": name }, head, make("dl", {}, ...rows));
}

function renderChange(change) {
  const head = make(
    "div",
    { class: "head" },
    make("strong", { text: `#${change.sequence_num}` }),
    make("span", { text: `${change.event_type} by ${change.author}` }),
    moment(change.created_at),
  );
  const rows = Object.entries(change.delta).flatMap(([key, value]) => [
    make("dt", {}, make("code", { text: key, dir: "auto" })),
    make("dd", {}, make("pre", { text: json(value), dir: "auto" })),
  ]);
  return make("li", {}, head, make("dl", {}, ...rows));
}
