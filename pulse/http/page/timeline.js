// A conversation: the stored items, page by page, and after them the messages that are being streamed.

import { json, make, moment, settled } from "./dom.js";

const PAGE = 100;
const LIVE_TEXT = { TEXT_MESSAGE_START: "assistant_message", REASONING_MESSAGE_START: "thought" };
const MORE_TEXT = new Set(["TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"]);
const STORED = new Set([
  "TEXT_MESSAGE_END", "REASONING_MESSAGE_END", "TOOL_CALL_END", "TOOL_CALL_RESULT", "MESSAGES_SNAPSHOT",
  "RUN_STARTED", "RUN_FINISHED", "RUN_ERROR",
]);
// The id of a frame of a stored event, without open texts: the frame is within the event after that number.
const STORED_POSITION = /^\d+(\.\d+)?$/;
const NAMES = {
  user_message: "User",
  assistant_message: "Assistant",
  thought: "Thought",
  tool_call: "Tool call",
  tool_result: "Tool result",
};

export class Timeline {
  #api;
  #thread;
  #parts;
  #first = 0;
  #last = 0;
  #live = new Map();
  #refresh;
  #closed = false;

  /** @param parts {log, list, earlier, note}: elements; and keepingPosition(change). `failed(error)` is called with what could not be read. */
  constructor(api, thread, lastSequence, parts, failed) {
    this.#api = api;
    this.#thread = thread;
    this.#parts = parts;
    this.#first = this.#last = Math.max(0, lastSequence - PAGE);
    this.#refresh = settled(() => this.#readOn().catch(failed), 60);
    parts.list.replaceChildren();
    parts.log.setAttribute("aria-busy", "true");
    parts.earlier.onclick = () => this.#readBack().catch(failed);
    this.#showEarlier();
  }

  close() {
    this.#closed = true;
    this.#refresh.cancel();
  }

  /** Read what was stored since the last read. */
  refresh() {
    this.#refresh.request();
  }

  /** Take an event of the stream of a run in progress. */
  receive(event, position) {
    if (STORED.has(event.type)) this.refresh();
    if (event.type in LIVE_TEXT) this.#begin(event, position);
    else if (MORE_TEXT.has(event.type)) this.#say(event);
    else if (event.type.endsWith("_MESSAGE_END")) this.#end(event.messageId);
    else if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") for (const id of this.#live.keys()) this.#end(id);
    else if (event.type === "MESSAGES_SNAPSHOT") this.#dropLive(() => true);
  }

  #begin(event, position) {
    const isShown = STORED_POSITION.test(position) && Number.parseInt(position, 10) < this.#last;
    if (isShown || this.#live.has(event.messageId)) return;
    const kind = event.role === "user" ? "user_message" : LIVE_TEXT[event.type];
    const text = make("p", { class: "text", dir: "auto" });
    const element = item(kind, make("span", { class: "now", text: "now" }), text);
    element.classList.add("open");
    this.#live.set(event.messageId, { element, text, ended: false });
    this.#parts.keepingPosition(() => this.#parts.list.append(element));
    this.#note();
  }

  #say(event) {
    const open = this.#live.get(event.messageId);
    if (open) this.#parts.keepingPosition(() => open.text.append(event.delta));
  }

  #end(id) {
    const open = this.#live.get(id);
    if (!open) return;
    open.ended = true;
    open.element.classList.remove("open");
  }

  #dropLive(which) {
    for (const [id, open] of this.#live) {
      if (!which(open, id)) continue;
      open.element.remove();
      this.#live.delete(id);
    }
  }

  async #readOn() {
    // In the stream a message ends when it is stored: messages that have ended are in the pages that are read now.
    const ended = new Set([...this.#live.values()].filter((open) => open.ended));
    for (let more = true; more; ) {
      const page = await this.#api.timeline(this.#thread, this.#last, PAGE);
      if (this.#closed) return;
      const firstLive = [...this.#live.values()][0]?.element ?? null;
      const items = page.timeline.map(render);
      const known = new Set(page.timeline.map((each) => each.id));
      this.#parts.keepingPosition(() => {
        for (const each of items) this.#parts.list.insertBefore(each, firstLive);
        this.#dropLive((open, id) => known.has(id));
      });
      this.#last = Math.max(this.#last, ...page.timeline.map((each) => each.sequenceNumber));
      more = page.nextCursor !== null;
    }
    this.#parts.keepingPosition(() => this.#dropLive((open) => ended.has(open)));
    this.#parts.log.setAttribute("aria-busy", "false");
    this.#note();
  }

  async #readBack() {
    const from = Math.max(0, this.#first - PAGE);
    const page = await this.#api.timeline(this.#thread, from, PAGE);
    if (this.#closed) return;
    const items = page.timeline.filter((each) => each.sequenceNumber <= this.#first).map(render);
    const { log, list } = this.#parts;
    const below = log.scrollHeight - log.scrollTop;
    log.setAttribute("aria-busy", "true");
    list.prepend(...items);
    log.scrollTop = log.scrollHeight - below;
    log.setAttribute("aria-busy", "false");
    this.#first = from;
    this.#showEarlier();
  }

  #showEarlier() {
    this.#parts.earlier.hidden = this.#first === 0;
  }

  #note() {
    const isEmpty = this.#parts.list.childElementCount === 0;
    this.#parts.note.hidden = !isEmpty;
    this.#parts.note.textContent = "This thread has no messages yet.";
  }
}

function render(each) {
  const when = moment(each.timestamp);
  if (each.type === "tool_call") {
    return item(each.type, when, make("pre", { text: json(each.toolInput), dir: "auto" }), each.toolName);
  }
  if (each.type === "tool_result") {
    const output = typeof each.toolOutput === "string" ? each.toolOutput : json(each.toolOutput);
    const element = item(each.type, when, make("pre", { text: output, dir: "auto" }), each.toolName);
    if (each.isError) {
      element.classList.add("error");
      element.firstElementChild.append(make("span", { class: "failed", text: "failed" }));
    }
    return element;
  }
  const element = item(each.type, when, make("p", { class: "text", dir: "auto", text: each.content }));
  for (const part of each.parts ?? []) {
    // Never loaded from here: an address may belong to anyone.
    element.append(make("p", { class: "note", dir: "auto", text: part.text ?? `(${part.type})` }));
  }
  if (each.isPartial) {
    element.firstElementChild.append(make("span", { class: "failed", text: "not finished" }));
  }
  return element;
}

function item(kind, when, body, tool) {
  const head = make("div", { class: "head" }, make("strong", { text: NAMES[kind] ?? kind }));
  if (tool) head.append(make("code", { text: tool }));
  head.append(when);
  return make("li", { class: `item ${kind}` }, head, body);
}
