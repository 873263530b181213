// Against a real writer (API, KEY), which is reached through a proxy that refuses and cuts on demand.

import assert from "node:assert/strict";
import { EventEmitter, getEventListeners, once } from "node:events";
import * as http from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

import {
  type AgUiEvent,
  ConflictError,
  ConnectionFailedError,
  type EventStream,
  Hippocampus,
  type HippocampusOptions,
  InvalidRequestError,
  JobEndedError,
  KeyRefusedError,
  NotFoundError,
  type RunStream,
  TimedOutError,
  UnavailableError,
} from "pg-hippocampus";

const { API, KEY } = process.env;
assert(API && KEY);

/** What happens to a request instead of passing: a status, a cut after some bytes of the response, or silence. */
type Fault = { status: number; retryAfter?: string } | { cutAfter: number } | "silence";

interface Passed {
  method: string;
  url: URL;
  headers: http.IncomingHttpHeaders;
  /** When it came, in milliseconds. */
  at: number;
}

class Proxy {
  readonly faults: Fault[] = [];
  requests: Passed[] = [];
  /** A request came that is left unanswered. */
  readonly silenced = new EventEmitter();
  readonly #server = http.createServer((request, response) => this.#pass(request, response));

  async listen(): Promise<string> {
    this.#server.listen(0, "127.0.0.1");
    await once(this.#server, "listening");
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  close(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #pass(request: http.IncomingMessage, response: http.ServerResponse): void {
    const url = new URL(request.url ?? "/", API);
    this.requests.push({ method: request.method ?? "", url, headers: request.headers, at: performance.now() });
    const fault = this.faults.shift();
    if (fault === "silence") {
      this.silenced.emit("request");
      return;
    }
    if (fault && "status" in fault) {
      request.resume();
      response.writeHead(fault.status, fault.retryAfter === undefined ? {} : { "Retry-After": fault.retryAfter });
      response.end();
      return;
    }
    const { method, headers } = request;
    const onward = http.request(url, { method, headers: { ...headers, host: url.host } }, (answer) => {
      response.writeHead(answer.statusCode ?? 500, answer.headers);
      let left = fault?.cutAfter ?? Infinity;
      answer.on("data", (piece: Buffer) => {
        response.write(piece.subarray(0, left), () => {
          if (left <= 0) response.destroy();
        });
        left -= piece.length;
        if (left <= 0) onward.destroy();
      });
      answer.on("end", () => response.end());
      answer.on("error", () => response.destroy());
    });
    onward.on("error", () => response.destroy());
    response.on("close", () => onward.destroy());
    request.pipe(onward);
  }
}

const proxy = new Proxy();
let baseUrl = "";
let client: Hippocampus;

before(async () => {
  baseUrl = await proxy.listen();
  client = new Hippocampus({ baseUrl, key: KEY, app: "shop" });
});
after(() => proxy.close());

// What is held only weakly is lost soon, and not by chance.
setFlagsFromString("--expose-gc");
setInterval(runInNewContext("gc") as () => void, 100).unref();

/** The requests that the proxy got meanwhile. */
async function seen(work: () => Promise<unknown>): Promise<Passed[]> {
  proxy.requests = [];
  await work();
  return [...proxy.requests];
}

async function read(stream: EventStream): Promise<AgUiEvent[]> {
  const events: AgUiEvent[] = [];
  for await (const event of stream) events.push(event);
  return events;
}

test("a session is created, appended to twice under the same ids, and read", async () => {
  const session = await client.createSession("ann", { session_id: "a/b ü", state: { step: 1 } });
  assert.equal(session.id, "a/b ü");
  const event = { id: "e1", author: "user", content: { text: "Oat milk, no sugar." } };
  const first = await client.append("ann", "a/b ü", [event]);
  const again = await client.append("ann", "a/b ü", [event]);
  assert.deepEqual([first, again].map((each) => each.events.map((stored) => stored.appended)), [[true], [false]]);
  assert.equal(again.version, first.version);
  const { events } = await client.getSession("ann", "a/b ü", { num_recent_events: 10 });
  assert.deepEqual(events.map((each) => each.id), ["e1"]);
  await assert.rejects(client.createSession("ann", { session_id: "a/b ü" }), ConflictError);
  await assert.rejects(client.append("ann", "a/b ü", [{ ...event, content: "else" }]), (error) => {
    assert(error instanceof ConflictError);
    assert.equal(error.type, "/problems/event-conflict");
    assert.equal(error.status, 409);
    assert.notEqual(error.requestId, "");
    return true;
  });
});

test("messages are added once, found, and put into prompts", async () => {
  const said = [
    { role: "user", content: "My parrot Rio eats mango.", id: "m1", timestamp: 1_700_000_000 },
    { role: "assistant", content: "Noted.", id: "m2" },
  ] as const;
  const added = await client.add("bea", said, { sessionId: "pets" });
  assert.deepEqual(added, { sessionId: "pets", version: added.version, added: 2 });
  assert.equal((await client.add("bea", said, { sessionId: "pets" })).added, 0);
  assert.equal((await client.add("bea", "Rio can whistle.")).added, 1);
  const [best] = await client.search("bea", "what does the parrot eat?", { limit: 3, sources: ["message"] });
  assert.match(best?.content ?? "", /mango/);
  assert.match(await client.recall("bea", "parrot mango"), /mango/);
  assert.match(JSON.stringify(await client.context("bea", "parrot mango", { max_tokens: 500 })), /mango/);
  const answer = await client.ask("bea", "What does the parrot eat?");
  assert(answer.citations.length > 0);
  assert.deepEqual((await client.profile("bea")).lines, []);
});

test("what is stored by hand is listed, over several pages", async () => {
  for (const [key, value] of [["city", "Lisbon"], ["tea", "green"], ["size", "M"]] as const) {
    await client.rememberFact("cem", { key, value });
    await client.remember("cem", { content: `The ${key} is ${value}.` });
  }
  const facts: string[] = [];
  const requests = await seen(async () => {
    for await (const fact of client.facts("cem", { limit: 2 })) facts.push(fact.key);
  });
  assert.deepEqual(facts.sort(), ["city", "size", "tea"]);
  assert.equal(requests.length, 2);
  let memories = 0;
  for await (const memory of client.memories("cem", { limit: 2 })) memories += memory.content.startsWith("The ") ? 1 : 0;
  assert.equal(memories, 3);
});

test("a job is waited for", async () => {
  await client.add("dan", "The gate code is 4711.", { sessionId: "gate" });
  const job = await client.consolidate("dan", "gate", { job_type: "fast_replay" });
  await assert.rejects(client.waitForJob("dan", job, { waitMs: 150 }), TimedOutError);
  const path = { app_name: "shop", user_id: "dan", job_id: job };
  await client.api.POST("/v1/apps/{app_name}/users/{user_id}/jobs/{job_id}/cancel", { params: { path } });
  await assert.rejects(client.waitForJob("dan", job), (error) => {
    assert(error instanceof JobEndedError);
    assert.equal(error.job.status, "cancelled");
    return true;
  });
});

test("what is safe to repeat is repeated after Retry-After, and nothing else", async () => {
  proxy.faults.push({ status: 503, retryAfter: "1" }, { cutAfter: 20 });
  let added = await seen(() => client.add("eve", [{ role: "user", content: "Once." }], { sessionId: "s" }));
  assert.deepEqual(added.map(({ url }) => url.pathname.split("/").at(-1)), ["sessions", "sessions", "sessions", "events"]);
  assert((added[1]?.at ?? 0) - (added[0]?.at ?? 0) >= 1000);
  proxy.faults.push({ cutAfter: 20 });
  added = await seen(() => client.append("eve", "s", [{ author: "user", content: { text: "Twice." } }]));
  assert.equal(added.length, 2);
  assert.equal((await client.getSession("eve", "s", { num_recent_events: 10 })).events?.length, 2);
  proxy.faults.push({ status: 503 });
  const refused = seen(() => client.remember("eve", { content: "A memory." }));
  await assert.rejects(refused, UnavailableError);
  assert.equal(proxy.requests.length, 1);
  proxy.faults.push({ status: 503, retryAfter: "60" });
  await assert.rejects(client.search("eve", "once"), UnavailableError);
  proxy.faults.push({ status: 503 }, { status: 502 }, { status: 429 }, { status: 504 });
  const all = seen(() => client.search("eve", "once"));
  await assert.rejects(all, (error) => error instanceof UnavailableError && error.status === 504);
  assert.equal(proxy.requests.length, 4);
});

test("errors have classes", async () => {
  const wrong = new Hippocampus({ baseUrl, key: "hip_wrong", app: "shop" });
  await assert.rejects(wrong.search("ann", "tea"), (error) => {
    assert(error instanceof KeyRefusedError);
    assert.deepEqual([error.name, error.type, error.status], ["KeyRefusedError", "/problems/wrong-key", 401]);
    return true;
  });
  await assert.rejects(read(wrong.followRun("ann", "any")), KeyRefusedError);
  await assert.rejects(client.getSession("ann", "none"), NotFoundError);
  await assert.rejects(client.search("ann", ""), (error) => {
    assert(error instanceof InvalidRequestError);
    assert.notEqual(error.detail, "");
    return true;
  });
  const away = new Hippocampus({ baseUrl: "http://127.0.0.1:9", app: "shop", retry: { attempts: 2 } });
  await assert.rejects(away.search("ann", "tea"), ConnectionFailedError);
  await assert.rejects(read(away.followRun("ann", "any", { reconnects: 0 })), ConnectionFailedError);
});

test("a call ends at its time-out and by its signal", async () => {
  proxy.faults.push("silence");
  await assert.rejects(client.search("ann", "tea", { timeoutMs: 1000 }), TimedOutError);
  const controller = new AbortController();
  proxy.faults.push("silence");
  void once(proxy.silenced, "request").then(() => controller.abort(new Error("changed my mind")));
  await assert.rejects(client.search("ann", "tea", { signal: controller.signal }), /changed my mind/);
  proxy.faults.push({ status: 503, retryAfter: "5" });
  const pausing = client.search("ann", "tea", { signal: AbortSignal.timeout(1000) });
  await assert.rejects(pausing, { name: "TimeoutError" });
  // Each request reached the proxy: no fault is left for the next test.
  assert.deepEqual(proxy.faults, []);
});

test("a run that is cut again and again arrives as the whole one, each event once", async () => {
  const input = { threadId: "t1", runId: "r1", messages: [{ id: "u1", role: "user" as const, content: "hi" }] };
  // Busy at first; cut while the run is executed; then again at several places of the rest.
  proxy.faults.push({ status: 503 }, { cutAfter: 1500 }, { cutAfter: 700 }, { status: 502 }, { cutAfter: 3000 });
  let stream!: RunStream;
  let events: AgUiEvent[] = [];
  const requests = await seen(async () => {
    stream = client.runAgent("fay", input, { agent: "frames" });
    events = await read(stream);
  });
  assert.deepEqual(requests.map(({ method }) => method), ["POST", "POST", "GET", "GET", "GET", "GET"]);
  assert.equal(events.at(-1)?.type, "RUN_FINISHED");
  const whole = await read(client.followRun("fay", "r1"));
  assert(whole.length > 60);
  assert.deepEqual(shown(events), shown(whole));
  assert.equal((await client.run("fay", "r1")).status, "completed");

  // Of a run that has ended too; the first cut comes before any event.
  for (const cutAfter of [1, 999, 2500, 4001]) {
    proxy.faults.push({ cutAfter });
    assert.deepEqual(shown(await read(client.followRun("fay", "r1"))), shown(whole));
  }
  assert.deepEqual(await read(client.followRun("fay", "r1", { cursor: stream.cursor })), []);
});

/** What does not depend on how live text was divided, on where a client began, and on what it sent itself. */
function shown(events: AgUiEvent[]): { text: string; types: string[] } {
  let text = "";
  const types: string[] = [];
  for (const event of events) {
    if ("messageId" in event && event.messageId === "u1") continue;
    if (event.type === "TEXT_MESSAGE_CONTENT" || event.type === "REASONING_MESSAGE_CONTENT") text += event.delta;
    else if (!event.type.endsWith("_SNAPSHOT")) types.push(event.type);
  }
  return { text, types };
}

test("a loop that is left continues after its last event, and a silent connection is replaced", async () => {
  const input = { threadId: "t2", messages: [{ id: "u1", role: "user" as const, content: "hello there" }] };
  const stream = client.runAgent("gus", input, { agent: "echo" });
  const first: AgUiEvent[] = [];
  for await (const event of stream) {
    first.push(event);
    if (first.length === 3) break;
  }
  const later = client.followRun("gus", stream.runId, { cursor: stream.cursor, idleMs: 1000 });
  proxy.faults.push("silence");
  const all = [...first, ...(await read(later))];
  assert.deepEqual(shown(all), shown(await read(client.followRun("gus", stream.runId))));
});

test("connections that stay long and bring nothing are failures, and those that bring bytes are none", async (t) => {
  // Each millisecond counts as a minute of the client's.
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() * 60_000);
  let asked = 0;
  let isSilent = true;
  const server = http.createServer((_, response) => {
    asked += 1;
    response.writeHead(200, { "Content-Type": "text/event-stream" });
    response.write("retry: 1\n\n");
    if (isSilent) return;
    setTimeout(() => response.write(": heartbeat\n\n"), 20);
    setTimeout(() => response.end(asked < 6 ? "" : 'id: 1\ndata: {"type":"RUN_FINISHED"}\n\n'), 40);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const theirs = new Hippocampus({ baseUrl: url, app: "shop" });
  await assert.rejects(read(theirs.followRun("gus", "r1", { idleMs: 200, reconnects: 2 })), ConnectionFailedError);
  assert.equal(asked, 3);
  [asked, isSilent] = [0, false];
  assert.equal((await read(theirs.followRun("gus", "r1", { reconnects: 2 }))).length, 1);
  assert.equal(asked, 6);
  server.closeAllConnections();
  server.close();
});

/** A page without a key, and the tickets that its backend issued. */
function pageOf(): { page: Hippocampus; tickets: string[] } {
  const tickets: string[] = [];
  const page = new Hippocampus({
    baseUrl,
    app: "shop",
    ticket: async ({ userId, sessionId, runId, mayRun }) => {
      assert(sessionId);
      const { ticket } = await client.ticket(userId, sessionId, { ...(runId === null ? {} : { runId }), mayRun });
      tickets.push(ticket);
      return ticket;
    },
  });
  return { page, tickets };
}

/** A request that passes. */
const PASS: Fault = { cutAfter: Infinity };

test("a page follows with one ticket over its connections, with a new one when it is refused, and without the key", async () => {
  const stream = client.runAgent("hal", {
    threadId: "t3",
    runId: "r3",
    messages: [{ id: "u1", role: "user", content: "hello" }],
  }, { agent: "echo" });
  const whole = await read(stream);
  const { page, tickets } = pageOf();
  // The ticket's own request passes first. The third connection is refused, as if the ticket had expired meanwhile.
  proxy.faults.push(PASS, { cutAfter: 600 }, { cutAfter: 100 }, { status: 401 });
  const requests = await seen(async () => {
    const followed = await read(page.followRun("hal", "r3", { sessionId: "t3" }));
    assert.equal(followed.at(-1)?.type, "RUN_FINISHED");
    assert.deepEqual(shown(followed), shown(whole));
  });
  const streams = requests.filter(({ method }) => method === "GET");
  assert.equal(new Set(tickets).size, 2);
  const [first, second] = tickets;
  assert.deepEqual(streams.map(({ url }) => url.searchParams.get("ticket")), [first, first, first, second]);
  assert(streams.every(({ headers }) => headers.authorization === undefined));
  const wrong = new Hippocampus({ baseUrl, app: "shop", ticket: () => Promise.resolve("no ticket") });
  const refused = await seen(() => assert.rejects(read(wrong.followRun("hal", "r3")), KeyRefusedError));
  assert.equal(refused.length, 1);
});

test("a ticket is not asked for with a run's id in place of its options", () => {
  assert.throws(() => client.ticket("gus", "t1", "r1" as never), TypeError);
});

test("a page runs an agent, follows the run and cancels it, with tickets alone", async () => {
  const { page, tickets } = pageOf();
  await client.createSession("jon", { session_id: "t5" });
  const input = { threadId: "t5", runId: "r5", messages: [{ id: "u1", role: "user" as const, content: "wait" }] };
  proxy.faults.push(PASS, { cutAfter: 900 });
  const stream = page.runAgent("jon", input, { agent: "wait" });
  const requests = await seen(async () => {
    let said = 0;
    let isCancelled = false;
    for await (const event of stream) {
      if (event.type === "TEXT_MESSAGE_CONTENT") said += event.delta.length;
      if (said === 0 || isCancelled) continue;
      isCancelled = true;
      await page.cancelRun("jon", "r5", { sessionId: "t5" });
    }
  });
  assert.equal((await client.run("jon", "r5")).status, "cancelled");
  // One for the run and its stream, one for the cancellation.
  assert.equal(tickets.length, 2);
  const own = requests.filter(({ url }) => url.pathname !== "/api/tickets");
  assert(own.every(({ headers, url }) => headers.authorization === undefined && url.searchParams.get("ticket")));
  const readOnly = await client.ticket("jon", "t5");
  const reader = new Hippocampus({ baseUrl, app: "shop", ticket: () => Promise.resolve(readOnly.ticket) });
  await assert.rejects(read(reader.runAgent("jon", { ...input, runId: "r6" }, { agent: "wait" })), KeyRefusedError);
});

test("a run is started with what its client chooses", async () => {
  const said = { id: "u1", role: "user" as const, content: "wait" };
  const stream = client.runAgent("kim", { threadId: "t6", messages: [said] }, { agent: "wait", onDisconnect: "cancel" });
  for await (const event of stream) if (event.type === "TEXT_MESSAGE_CONTENT") break;
  const last = (await read(client.followRun("kim", stream.runId, { cursor: stream.cursor }))).at(-1);
  assert(last?.type === "RUN_FINISHED");
  assert.equal(last.outcome?.type, "cancelled");
  // Without its turns the conversation would be refused.
  const next = { threadId: "t6", messages: [{ ...said, id: "u2", content: "hello" }] };
  const options = { agent: "echo", history: "server", activeRun: "cancel" } as const;
  const [start] = await seen(async () => assert.equal((await read(client.runAgent("kim", next, options))).at(-1)?.type, "RUN_FINISHED"));
  assert.equal(start?.url.search, "?active_run=cancel&history=server&app_name=shop&user_id=kim");
});

test("a session is followed over its runs and over cuts, and comes back when the stream asks for it", async () => {
  await client.createSession("lea", { session_id: "t7" });
  const { page, tickets } = pageOf();
  const run = (runId: string): Promise<AgUiEvent[]> => {
    const messages = [{ id: `u-${runId}`, role: "user" as const, content: "hello" }];
    return read(client.runAgent("lea", { threadId: "t7", runId, messages }, { agent: "echo", history: "server" }));
  };
  proxy.faults.push(PASS, { cutAfter: 400 });
  const stream = page.followSession("lea", "t7");
  const ended: string[] = [];
  const requests = await seen(async () => {
    // The stream begins with the first run that is active, or that comes.
    const following = (async () => {
      for await (const event of stream) {
        if (event.type !== "RUN_FINISHED") continue;
        ended.push(event.runId);
        if (ended.length === 2) break;
      }
    })();
    while (!proxy.requests.some(({ url }) => url.pathname.startsWith("/api/threads/"))) await new Promise(setImmediate);
    await run("r7");
    await run("r8");
    await following;
  });
  assert.deepEqual(ended, ["r7", "r8"]);
  assert.equal(tickets.length, 1);
  const streams = requests.filter(({ url }) => url.pathname === "/api/threads/t7/events");
  assert.equal(streams.length, 2);
  // `retry:` of the stream is at least a second; without it the pause would be half of one.
  const [first, second] = streams;
  assert((second?.at ?? 0) - (first?.at ?? 0) >= 1000);
  const later = page.followSession("lea", "t7", { cursor: stream.cursor, signal: AbortSignal.timeout(500) });
  await assert.rejects(read(later), { name: "TimeoutError" });
  await assert.rejects(read(client.followSession("lea", "none")), NotFoundError);
});

test("a session's stream that is cut before its first event loses and repeats nothing", async () => {
  await client.createSession("lea", { session_id: "t8" });
  const { page } = pageOf();
  // Past the proxy: the runs are over before the stream is back.
  const direct = new Hippocampus({ baseUrl: API, key: KEY, app: "shop" });
  const run = async (runId: string): Promise<void> => {
    const messages = [{ id: `u-${runId}`, role: "user" as const, content: "hello" }];
    await read(direct.runAgent("lea", { threadId: "t8", runId, messages }, { agent: "echo", history: "server" }));
  };
  proxy.faults.push(PASS, { cutAfter: 20 }, { status: 503 }, { status: 503 });
  const stream = page.followSession("lea", "t8");
  const seenRuns: string[] = [];
  const following = (async () => {
    for await (const event of stream) {
      if (event.type === "RUN_STARTED") seenRuns.push(event.runId);
      if (event.type === "RUN_FINISHED" && event.runId === "r10") break;
    }
  })();
  while (proxy.faults.length > 1) await new Promise(setImmediate);
  await run("r9");
  await run("r10");
  await following;
  assert.deepEqual(seenRuns, ["r9", "r10"]);
});

test("a stream ends by its signal, and the run goes on until it is cancelled", async () => {
  const controller = new AbortController();
  const input = { threadId: "t4", runId: "r4", messages: [{ id: "u1", role: "user" as const, content: "wait" }] };
  const stream = client.runAgent("ida", input, { agent: "wait", signal: controller.signal });
  await assert.rejects(async () => {
    for await (const event of stream) if (event.type === "TEXT_MESSAGE_CONTENT" && event.delta.includes("still")) controller.abort();
  }, { name: "AbortError" });
  assert.equal((await client.run("ida", "r4")).status, "running");
  await client.cancelRun("ida", "r4");
  const last = (await read(client.followRun("ida", "r4", { cursor: stream.cursor }))).at(-1);
  assert(last?.type === "RUN_FINISHED");
  assert.equal(last.outcome?.type, "cancelled");
  await assert.rejects(read(client.followRun("ida", "none")), NotFoundError);
});

/** A server of faults, and a client of it. */
async function faulty(answer: http.RequestListener, options: Partial<HippocampusOptions> = {}) {
  let requests = 0;
  const server = http.createServer((request, response) => {
    requests += 1;
    answer(request, response);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    theirs: new Hippocampus({ baseUrl: url, app: "shop", ...options }),
    requests: () => requests,
    connections: () => new Promise<number>((resolve) => server.getConnections((_, count) => resolve(count))),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

const SSE = { "Content-Type": "text/event-stream" };

function frame(id: number | null, event: object): string {
  return `${id === null ? "" : `id: ${id}\n`}data: ${JSON.stringify(event)}\n\n`;
}

test("a time that is no number is refused, none at all is over at once, and endless is long", async () => {
  for (const wrong of [Number.NaN, -1]) {
    assert.throws(() => new Hippocampus({ baseUrl, app: "shop", timeoutMs: wrong }), RangeError);
    assert.throws(() => new Hippocampus({ baseUrl, app: "shop", retry: { attempts: wrong } }), RangeError);
    assert.throws(() => new Hippocampus({ baseUrl, app: "shop", retry: { waitMs: wrong } }), RangeError);
    const calls = await seen(async () => {
      await assert.rejects(client.search("ann", "tea", { timeoutMs: wrong }), RangeError);
      await assert.rejects(client.waitForJob("ann", "any", { waitMs: wrong }), RangeError);
      await assert.rejects(read(client.followRun("ann", "any", { idleMs: wrong })), RangeError);
      await assert.rejects(read(client.followRun("ann", "any", { reconnects: wrong })), RangeError);
    });
    assert.equal(calls.length, 0);
  }
  await assert.rejects(client.search("ann", "tea", { timeoutMs: 0 }), TimedOutError);
  await client.search("ann", "tea", { timeoutMs: Infinity });
  await assert.rejects(read(client.followRun("ann", "none", { idleMs: Infinity })), NotFoundError);
});

test("a Retry-After of nothing, in the past, of another clock or without an end leaves the pauses as they are", async () => {
  let given: http.OutgoingHttpHeaders = {};
  const server = await faulty((_, response) => response.writeHead(503, given).end());
  const waiting = new Hippocampus({ baseUrl: server.url, app: "shop", retry: { attempts: 2, waitMs: Infinity } });
  for (const past of ["0", "-5", "Thu, 01 Jan 1970 00:00:00 GMT", "soon"]) {
    given = { "Retry-After": past };
    const started = performance.now();
    await assert.rejects(waiting.search("ann", "tea"), UnavailableError);
    assert(performance.now() - started >= 200, past);
  }
  given = { Date: "Thu, 01 Jan 1970 00:00:00 GMT", "Retry-After": "Thu, 01 Jan 1970 00:00:03 GMT" };
  const began = performance.now();
  await assert.rejects(waiting.search("ann", "tea"), UnavailableError);
  assert(performance.now() - began >= 3000);
  // More than a timer can count.
  given = { "Retry-After": "99999999" };
  const before = server.requests();
  await assert.rejects(waiting.search("ann", "tea", { signal: AbortSignal.timeout(500) }), { name: "TimeoutError" });
  await assert.rejects(read(waiting.followRun("ann", "r", { signal: AbortSignal.timeout(500) })), { name: "TimeoutError" });
  assert.equal(server.requests() - before, 2);
  server.close();
});

test("what is aborted before it begins asks for nothing", async () => {
  let tickets = 0;
  const ticket = (): Promise<string> => Promise.resolve(`${++tickets}`);
  const server = await faulty((_, response) => response.end(), { ticket });
  const signal = AbortSignal.abort(new Error("too late"));
  await assert.rejects(server.theirs.search("ann", "tea", { signal }), /too late/);
  await assert.rejects(server.theirs.cancelRun("ann", "r", { signal }), /too late/);
  await assert.rejects(read(server.theirs.followRun("ann", "r", { signal })), /too late/);
  await assert.rejects(server.theirs.waitForJob("ann", "j", { signal }), /too late/);
  assert.deepEqual([tickets, server.requests()], [0, 0]);
  server.close();
});

test("a ticket that never comes is not waited for without an end", async () => {
  const never = new Promise<string>(() => undefined);
  const page = new Hippocampus({ baseUrl, app: "shop", ticket: () => never });
  await assert.rejects(page.cancelRun("ann", "r", { timeoutMs: 200 }), TimedOutError);
  await assert.rejects(page.cancelRun("ann", "r", { signal: AbortSignal.timeout(200) }), { name: "TimeoutError" });
  await assert.rejects(read(page.followRun("ann", "r", { idleMs: 200, reconnects: 0 })), ConnectionFailedError);
});

test("two loops over one stream have each event once, however their connections end", async () => {
  const server = await faulty((request, response) => {
    const next = Number(new URL(request.url ?? "", baseUrl).searchParams.get("offset") ?? 0) + 1;
    response.writeHead(200, SSE);
    response.end(`retry: 1\n\n${frame(next, { type: next === 6 ? "RUN_FINISHED" : "CUSTOM", value: next })}`);
  });
  const stream = server.theirs.followRun("ann", "r");
  const [first, second] = [stream[Symbol.asyncIterator](), stream[Symbol.asyncIterator]()];
  const values: unknown[][] = [[], []];
  const take = async (which: 0 | 1): Promise<void> => {
    const { value } = await (which === 0 ? first : second).next();
    values[which]?.push(value && "value" in value ? value.value : null);
  };
  await Promise.all([take(0), take(1)]);
  // The second is some events behind, and both are cut after each one.
  for (const which of [0, 0, 1, 0, 1, 1, 0, 1, 0, 1] as const) await take(which);
  assert.deepEqual(values, [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]]);
  assert.equal(stream.cursor, "6");
  server.close();
});

test("a loop that aborts gets no further event, and one that is left has no connection and no listener", async () => {
  const server = await faulty((_, response) => {
    response.writeHead(200, SSE);
    response.write([1, 2, 3].map((id) => frame(id, { type: "CUSTOM", value: id })).join(""));
  });
  const gone = async (): Promise<void> => {
    for (const began = performance.now(); (await server.connections()) > 0; ) {
      assert(performance.now() - began < 60_000);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  };
  const controller = new AbortController();
  let got = 0;
  await assert.rejects(async () => {
    for await (const _ of server.theirs.followSession("ann", "s", { signal: controller.signal })) {
      got += 1;
      controller.abort(new Error("enough"));
    }
  }, /enough/);
  assert.equal(got, 1);
  await gone();
  const { signal } = new AbortController();
  for await (const _ of server.theirs.followSession("ann", "s", { signal })) {
    // Until garbage was collected.
    await new Promise((resolve) => setTimeout(resolve, 300));
    break;
  }
  await gone();
  await assert.rejects(server.theirs.search("ann", "tea", { timeoutMs: 500 }), TimedOutError);
  await gone();
  await Promise.all(Array.from({ length: 8 }, () => client.search("ann", "tea", { signal })));
  assert.equal(getEventListeners(signal, "abort").length, 0);
  server.close();
});

test("an error without an id that comes with each connection ends the stream", async () => {
  const server = await faulty((_, response) => {
    response.writeHead(200, SSE);
    response.end(`retry: 1\n\n${frame(null, { type: "RUN_ERROR", message: "the stream failed" })}`);
  });
  const seenErrors: AgUiEvent[] = [];
  await assert.rejects(async () => {
    for await (const event of server.theirs.followSession("ann", "s", { reconnects: 2 })) seenErrors.push(event);
  }, ConnectionFailedError);
  assert.deepEqual([seenErrors.length, server.requests()], [3, 3]);
  server.close();
});

test("bodies that stall, bodies of something else, and jobs of an API that is silent are no wait without an end", async () => {
  let [status, headers, body] = [200, { "Content-Type": "application/json" }, '{"results": ['];
  const server = await faulty((_, response) => response.writeHead(status, headers).write(body));
  await assert.rejects(server.theirs.search("ann", "tea", { timeoutMs: 300 }), TimedOutError);
  const began = performance.now();
  await assert.rejects(server.theirs.waitForJob("ann", "j", { waitMs: 300 }), TimedOutError);
  assert(performance.now() - began < 15_000);
  [status, headers] = [404, { "Content-Type": "application/problem+json" }];
  await assert.rejects(read(server.theirs.followRun("ann", "r", { idleMs: 300 })), NotFoundError);
  server.close();
  const page = await faulty((_, response) => response.writeHead(200, { "Content-Type": "text/html" }).end("<h1>Log in</h1>"));
  await assert.rejects(page.theirs.search("ann", "tea"), ConnectionFailedError);
  await assert.rejects(read(page.theirs.followRun("ann", "r", { reconnects: 0 })), ConnectionFailedError);
  page.close();
});
