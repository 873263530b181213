// The page: a form for the app and the user, the list of their threads, and the selected thread.
// The address contains the app, the user and the thread, so that a reload shows them again; not the key.

import { Api } from "./api.js";
import { atEnd, show } from "./dom.js";
import { EventLog } from "./event_log.js";
import { ThreadList } from "./thread_list.js";
import { ThreadView } from "./thread_view.js";

const POLL_MILLISECONDS = 600;
const HIDDEN_MILLISECONDS = 10_000;
const AWAY_MILLISECONDS = 4_000;

const byId = (id) => document.getElementById(id);
const form = byId("who");
const notice = byId("notice");
const title = byId("thread-title");
const list = new ThreadList(byId("threads"), byId("threads-note"), (thread) => choose(thread));
const parts = {
  timeline: {
    log: byId("log"),
    list: byId("timeline"),
    earlier: byId("earlier"),
    note: byId("timeline-note"),
    keepingPosition: atEnd(byId("log")),
  },
  state: { scopes: byId("scopes"), history: byId("history"), note: byId("history-note") },
  log: new EventLog(byId("frames-box"), byId("frames"), byId("frame-count")),
  status: byId("run-status"),
};

let api = null;
let threads = [];
let view = null;
let wanted = null;
let timer = null;

async function poll() {
  clearTimeout(timer);
  const current = api;
  let wait = document.visibilityState === "visible" ? POLL_MILLISECONDS : HIDDEN_MILLISECONDS;
  try {
    const found = (await current.threads()).threads;
    if (current !== api) return;
    threads = found;
    show(notice, "");
    showThreads();
  } catch (error) {
    if (current !== api) return;
    wait = report(error) ? AWAY_MILLISECONDS : null;
  }
  if (wait !== null) timer = setTimeout(poll, wait);
}

/** Show the current list. */
function showThreads() {
  list.show(threads, threads.length === 100 ? "The 100 most recently changed." : "");
  const thread = threads.find((each) => each.thread_id === wanted);
  if (!thread) return;
  if (view?.id === wanted) view.update(thread);
  else open(thread);
}

function open(thread) {
  view?.close();
  list.mark(thread.thread_id);
  title.textContent = thread.thread_id;
  view = new ThreadView(api, thread, parts, report);
}

function choose(thread) {
  wanted = thread;
  list.mark(thread);
  remember();
  showThreads();
}

/** Show an error; return whether to retry. */
function report(error) {
  if (error.kind === "key") {
    askForKey();
    return false;
  }
  if (error.kind === "away") {
    show(notice, `${error.message} Retrying; the page may be out of date.`);
    return true;
  }
  show(notice, error.message ?? String(error));
  if (error.kind === undefined) throw error;
  return error.kind === "missing";
}

function askForKey() {
  const field = byId("key-field");
  const was = form.elements.key.value;
  const words = was ? "This server does not accept the key." : "This server requires a key.";
  stop(words);
  field.hidden = false;
  byId("key-note").hidden = false;
  show(notice, words);
  form.elements.key.focus();
  form.elements.key.select();
}

function stop(words) {
  clearTimeout(timer);
  api = null;
  view?.close();
  view = null;
  list.clear(words);
}

function remember() {
  const query = new URLSearchParams({ app: form.elements.app.value, user: form.elements.user.value });
  if (wanted !== null) query.set("thread", wanted);
  history.replaceState(null, "", `?${query}`);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  const { app, user, key } = form.elements;
  if (api && (api.app !== app.value || api.user !== user.value)) {
    wanted = null;
    title.textContent = "No thread selected";
    for (const each of [parts.timeline.list, parts.state.scopes, parts.state.history]) each.replaceChildren();
    parts.status.textContent = "";
  }
  stop("Loading …");
  api = new Api(app.value, user.value, key.value);
  remember();
  poll();
});

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "visible" && api) poll();
});

const given = new URLSearchParams(location.search);
form.elements.app.value = given.get("app") ?? "";
form.elements.user.value = given.get("user") ?? "";
wanted = given.get("thread");
if (form.elements.app.value && form.elements.user.value) form.requestSubmit();
else form.elements[form.elements.app.value ? "user" : "app"].focus();
