// The stream, event by event, as a client receives it.

import { atEnd, events, make } from "./dom.js";

const EVENTS_MAX = 300;
const TEXT_MAX = 160;

export class EventLog {
  #keepingPosition;
  #list;
  #count;
  #seen = 0;

  constructor(box, list, count) {
    this.#keepingPosition = atEnd(box);
    this.#list = list;
    this.#count = count;
    this.clear();
  }

  clear() {
    this.#seen = 0;
    this.#list.replaceChildren();
    this.#count.textContent = "0 events";
  }

  add(event, id) {
    this.#seen += 1;
    this.#count.textContent = events(this.#seen);
    const { type, ...rest } = event;
    const shown = JSON.stringify(rest);
    const line = make(
      "li",
      { value: this.#seen, title: `id ${id}` },
      make("code", { class: "type", text: type }),
      make("code", { class: "rest", text: shown.length > TEXT_MAX ? `${shown.slice(0, TEXT_MAX)}…` : shown }),
    );
    this.#keepingPosition(() => {
      this.#list.append(line);
      if (this.#list.childElementCount > EVENTS_MAX) this.#list.firstElementChild.remove();
    });
  }
}
