// The threads of a user, the most recently changed first. Each keeps its element, so that the focus is not lost.

import { events, make, moment } from "./dom.js";

export class ThreadList {
  #list;
  #note;
  #choose;
  #buttons = new Map();
  #chosen = null;

  constructor(list, note, choose) {
    this.#list = list;
    this.#note = note;
    this.#choose = choose;
  }

  clear(words) {
    this.#buttons.clear();
    this.#list.replaceChildren();
    this.#note.hidden = false;
    this.#note.textContent = words;
  }

  mark(thread) {
    this.#chosen = thread;
    for (const [id, { button }] of this.#buttons) {
      if (id === thread) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
  }

  show(threads, words) {
    const ids = new Set(threads.map((each) => each.thread_id));
    for (const [id, { entry }] of this.#buttons) {
      if (ids.has(id)) continue;
      entry.remove();
      this.#buttons.delete(id);
    }
    this.#note.hidden = threads.length > 0 && words === "";
    this.#note.textContent = threads.length > 0 ? words : "This user has no threads yet. New ones appear here.";
    threads.forEach((each, position) => {
      const { entry } = this.#render(each);
      // Moved only if its position changed: an element that is moved loses the focus.
      if (this.#list.children[position] !== entry) this.#move(entry, position);
    });
    this.mark(this.#chosen);
  }

  #move(entry, position) {
    const focused = document.activeElement;
    this.#list.insertBefore(entry, this.#list.children[position] ?? null);
    if (entry.contains(focused)) focused.focus();
  }

  #render(thread) {
    let found = this.#buttons.get(thread.thread_id);
    if (!found) {
      const button = make("button", { type: "button" });
      button.onclick = () => this.#choose(thread.thread_id);
      found = { button, entry: make("li", {}, button), shown: "" };
      this.#buttons.set(thread.thread_id, found);
    }
    const status = statusOf(thread);
    const shown = `${thread.version} ${thread.updated_at} ${status}`;
    if (shown !== found.shown) {
      found.shown = shown;
      found.button.replaceChildren(
        make("span", { class: "name", text: thread.thread_id, dir: "auto" }),
        make("span", { class: `badge ${status}`, text: status === "running" ? "live" : status }),
        make("span", { class: "when" }, moment(thread.updated_at), ` · ${events(thread.last_sequence)}`),
      );
    }
    return found;
  }
}

function statusOf(thread) {
  return thread.newest_run?.status ?? "quiet";
}
