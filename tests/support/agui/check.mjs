// How the AG-UI client itself processes a server's stream, over POST, GET and WebSocket, in two of its versions.
//
//   node check.mjs <client package> <base URL>      headers as JSON in CHECK_HEADERS
//
// Every scenario runs the real pipeline. It requires a terminal event, no warning, the rules that the client does not
// check, and the outcome that the scenario names. The output is a JSON report.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Observable } from "rxjs";
import WebSocket from "ws";

const [clientPackage, baseUrl] = process.argv.slice(2);
const { AbstractAgent, HttpAgent } = await import(clientPackage);
const headers = JSON.parse(process.env.CHECK_HEADERS ?? "{}");
const isBefore1 = clientPackage !== "@ag-ui/client";
const TEXT = "你好，世界 🦊 \u2028 and the rest of it. ";

let warnings = [];
for (const level of ["warn", "error"]) console[level] = (...words) => warnings.push(words.join(" "));

/** One event a message; a socket that closes without the run's end is an error, not an end. */
class SocketAgent extends AbstractAgent {
  run(input) {
    return new Observable((subscriber) => {
      const address = `${baseUrl.replace(/^http/, "ws")}/ws/events/${encodeURIComponent(input.threadId)}`;
      const query = `run_id=${encodeURIComponent(input.runId)}&legacy=${isBefore1}`;
      const socket = new WebSocket(`${address}?${query}`, { headers });
      socket.on("message", (data) => subscriber.next(JSON.parse(data.toString())));
      socket.on("error", (error) => subscriber.error(error));
      socket.on("close", (code) =>
        code === 1000 ? subscriber.complete() : subscriber.error(new Error(`the socket closed with ${code}`)),
      );
      return () => socket.close();
    });
  }
}

/** An agent object of the client's, over one of the transports. */
function agentOver(transport, name, threadId) {
  const common = { threadId, headers, initialMessages: [] };
  if (transport === "ws") return new SocketAgent(common);
  if (transport === "post") return new HttpAgent({ ...common, url: `${baseUrl}/agui/${name}` });
  return new HttpAgent({ ...common, url: baseUrl, fetch: (_, request) => follow(request) });
}

function follow(request) {
  const { runId } = JSON.parse(request.body);
  const asked = { ...headers, Accept: "text/event-stream" };
  return fetch(`${baseUrl}/api/runs/${encodeURIComponent(runId)}/events?legacy=${isBefore1}`, { headers: asked, signal: request.signal });
}

/** Run an agent object once; return what it saw. */
async function once(agent, runId, options = {}) {
  const { onEvent, ...parameters } = options;
  const seen = { events: [], ends: [], failed: null };
  const subscriber = {
    onEvent: ({ event }) => {
      seen.events.push(event);
      onEvent?.(event);
    },
    onRunFinishedEvent: ({ event }) => void seen.ends.push(event),
    onRunErrorEvent: ({ event }) => void seen.ends.push(event),
    onRunFailed: ({ error }) => void (seen.failed = error.message),
  };
  await agent.runAgent({ runId, ...parameters }, subscriber).catch((error) => (seen.failed ??= error.message));
  require(seen, runId, agent.threadId);
  return { ...seen, end: seen.ends[0], types: seen.events.map((event) => event.type) };
}

/** What the rules ask of every stream. */
function require({ events, ends, failed }, runId, threadId) {
  assert.deepEqual(warnings, [], "the client warned");
  const error = ends.find((event) => event.type === "RUN_ERROR");
  // Some versions report the run's own error as a failure too.
  if (failed !== null) assert.equal(failed, error?.message, "the pipeline failed");
  assert.equal(ends.length, 1, "one terminal event");
  assert.equal(events[0].type, "RUN_STARTED");
  assert.equal(events[0].runId, runId);
  assert.equal(events[0].threadId, threadId);
  if (!isBefore1) assert.equal(events[0].protocolVersion, "1.0");
  const end = events.at(-1);
  assert.equal(end, ends[0], "nothing follows the terminal event");
  if (end.type === "RUN_FINISHED") assert.deepEqual([end.runId, end.threadId], [runId, threadId]);
  for (const event of events) if (event.type === "CUSTOM") assert.match(event.name, /[.:/]/, "CUSTOM has a prefix");
}

const said = (agent) => agent.messages.filter((each) => each.role === "assistant" && each.content).map((each) => each.content);
const say = (agent, content) => agent.addMessage({ id: randomUUID(), role: "user", content });

/** Everything that a page keeps of a run, without what is the client's own. */
function shown(agent) {
  const plain = JSON.parse(JSON.stringify({ messages: agent.messages, state: agent.state }));
  return plain;
}

/** Post a run, then follow the same run over GET and WebSocket: all three must end with the same. */
async function overEveryTransport(name, text, check) {
  const [threadId, runId] = [`thread ${randomUUID()}`, randomUUID()];
  const posted = agentOver("post", name, threadId);
  say(posted, text);
  const first = await once(posted, runId);
  await check(posted, first);
  for (const transport of ["get", "ws"]) {
    const agent = agentOver(transport, name, threadId);
    const seen = await once(agent, runId);
    await check(agent, seen, transport);
    assert.deepEqual(shown(agent).messages, shown(posted).messages, `${transport} shows the same messages`);
    assert.deepEqual(shown(agent).state, shown(posted).state, `${transport} shows the same state`);
    if (first.end.type === "RUN_FINISHED") assert.deepEqual(seen.end.outcome, first.end.outcome);
  }
}

const finished = (seen) => assert.equal(seen.end.type, "RUN_FINISHED", JSON.stringify(seen.end));

const scenarios = {
  async "plain text, Chinese and emoji"() {
    await overEveryTransport("echo", `Say ${TEXT}`, (agent, seen) => {
      finished(seen);
      assert.deepEqual(said(agent).map((each) => each.trim()), [`Say ${TEXT}`.trim()]);
    });
  },

  async "thoughts, tools, state and two messages"() {
    await overEveryTransport("default", "go", (agent, seen) => {
      finished(seen);
      assert.equal(said(agent)[0], Array.from({ length: 12 }, (_, number) => `word${number} `).join(""));
      assert.equal(said(agent)[1], TEXT);
      const call = agent.messages.flatMap((each) => each.toolCalls ?? [])[0];
      assert.deepEqual(JSON.parse(call.function.arguments), { query: "a/b~c", limit: 2 });
      const answer = agent.messages.find((each) => each.role === "tool");
      assert.equal(answer.toolCallId, call.id);
      assert.deepEqual(JSON.parse(answer.content), { hits: [1, 2], note: "line\nbreak" });
      assert.deepEqual(agent.state.progress, { done: 3, of: 3 });
      assert.equal(agent.state["user:name"], "Mei");
      for (const type of ["STEP_STARTED", "REASONING_MESSAGE_CONTENT", "STATE_DELTA"]) assert.ok(seen.types.includes(type), type);
    });
  },

  async "long text"() {
    await overEveryTransport("long", "go on", (agent, seen) => {
      finished(seen);
      assert.deepEqual(said(agent), [Array.from({ length: 200 }, (_, number) => `${number}:${TEXT}`).join("")]);
    });
  },

  async "an error that the agent names"() {
    await overEveryTransport("fail", "go", (_, seen) => {
      assert.deepEqual([seen.end.type, seen.end.message, seen.end.code], ["RUN_ERROR", "no luck today", "no_luck"]);
    });
  },

  async "an error that tells no secret"() {
    await overEveryTransport("crash", "go", (_, seen) => {
      assert.equal(seen.end.type, "RUN_ERROR");
      assert.doesNotMatch(JSON.stringify(seen.events), /secret/);
    });
  },

  async "a request that is refused before its run begins"() {
    const agent = agentOver("post", "nobody", randomUUID());
    const failed = await agent.runAgent({ runId: randomUUID() }, { onRunFailed: () => {} }).then(() => null, (error) => error);
    assert.match(String(failed?.message), /404/);
    warnings = [];
  },

  async "cancel, seen by every follower"() {
    const [threadId, runId] = [randomUUID(), randomUUID()];
    const agents = ["post", "get", "ws"].map((transport) => agentOver(transport, "wait", threadId));
    say(agents[0], "wait");
    const following = [];
    for (const agent of agents) {
      // Each has received something before the next one connects, and all before the run is cancelled.
      await new Promise((received) => {
        const onEvent = (event) => event.type === "TEXT_MESSAGE_CONTENT" && received();
        following.push(once(agent, runId, { onEvent }));
      });
    }
    const answer = await fetch(`${baseUrl}/api/runs/${runId}/cancel`, { method: "POST", headers });
    assert.equal(answer.status, 202);
    for (const seen of await Promise.all(following)) {
      if (isBefore1) assert.deepEqual([seen.end.type, seen.end.code], ["RUN_ERROR", "cancelled"]);
      else assert.deepEqual([seen.end.type, seen.end.outcome], ["RUN_FINISHED", { type: "cancelled" }]);
    }
    for (const agent of agents) {
      assert.deepEqual(said(agent), ["still here "]);
      if (!isBefore1) assert.deepEqual(agent.messages.at(-1).metadata, { "hippocampus:partial": true });
    }
    // What was left stays, and the next message works.
    agents[0].url = `${baseUrl}/agui/echo`;
    say(agents[0], "next");
    finished(await once(agents[0], randomUUID()));
  },

  async "interrupt, and the answer to it, seen by every follower"() {
    const [threadId, asking, answering] = [randomUUID(), randomUUID(), randomUUID()];
    const agent = agentOver("post", "ask", threadId);
    const followers = () => ["get", "ws"].map((transport) => agentOver(transport, "ask", threadId));
    say(agent, "may I?");
    const asked = await once(agent, asking);
    assert.equal(asked.end.outcome?.type, "interrupt");
    assert.equal(asked.end.outcome.interrupts[0].id, "approve-1");
    for (const follower of followers()) assert.deepEqual((await once(follower, asking)).end.outcome, asked.end.outcome);
    const resume = [{ interruptId: "approve-1", status: "resolved", payload: "yes" }];
    finished(await once(agent, answering, { resume }));
    assert.deepEqual(said(agent), ["You said yes"]);
    for (const follower of followers()) {
      finished(await once(follower, answering));
      assert.deepEqual(said(follower), said(agent));
    }
  },

  async "a tool of the client's own"() {
    const agent = agentOver("post", "delegate", randomUUID());
    say(agent, "ask my page");
    const first = await once(agent, randomUUID());
    finished(first);
    const [call] = agent.messages.at(-1).toolCalls;
    if (!isBefore1) assert.deepEqual(first.end.outcome, { type: "success", pendingToolCallIds: [call.id] });
    agent.addMessage({ id: randomUUID(), role: "tool", toolCallId: call.id, content: "sure" });
    finished(await once(agent, randomUUID()));
    assert.deepEqual(said(agent), ["The page says sure"]);
  },

  async "what agents emit of their own"() {
    await overEveryTransport("emit", "go", (agent, seen) => {
      finished(seen);
      const thought = agent.messages.find((each) => each.role === "reasoning");
      assert.equal(thought.content, "I look it up.");
      const calls = agent.messages.flatMap((each) => each.toolCalls ?? []);
      assert.deepEqual(JSON.parse(calls[0].function.arguments), { query: "a/b", limit: 2 });
      const activity = agent.messages.find((each) => each.role === "activity");
      assert.deepEqual([activity.activityType, activity.content], ["PLAN", { steps: ["look", "say"] }]);
      assert.deepEqual(said(agent), ["Three are left."]);
      if (isBefore1) return;
      assert.deepEqual([thought.encryptedValue, calls[1].encryptedValue], ["opaque", "sealed"]);
      const failed = agent.messages.find((each) => each.role === "tool");
      assert.deepEqual(failed.metadata, { "hippocampus:isError": true });
      assert.deepEqual(seen.end.usage[0], { provider: "local", model: "tiny", inputTokens: 14, outputTokens: 10 });
    });
  },

  async "an edit of the state, and of the conversation"() {
    const agent = agentOver("post", "default", randomUUID());
    say(agent, "one");
    finished(await once(agent, randomUUID()));
    agent.setState({ ...agent.state, draft: "mine" });
    say(agent, "two");
    finished(await once(agent, randomUUID()));
    assert.equal(agent.state.draft, "mine");
    agent.messages[0].content = "another question";
    say(agent, "three");
    const refused = await agent.runAgent({ runId: randomUUID() }, { onRunFailed: () => {} }).then(() => null, (error) => error);
    assert.match(String(refused?.message), /409.*history-changed/);
    warnings = [];
  },

  async "several runs in a row on one agent object"() {
    const agent = agentOver("post", "default", randomUUID());
    for (let turn = 1; turn <= 3; turn += 1) {
      say(agent, `turn ${turn}`);
      finished(await once(agent, randomUUID()));
      assert.equal(said(agent).length, 2 * turn);
      assert.deepEqual(agent.state.progress, { done: 3, of: 3 });
    }
    const ids = agent.messages.map((each) => each.id);
    assert.equal(new Set(ids).size, ids.length, "each message has an id of its own");
    // A client that joins later has the whole conversation, in the same order.
    const joined = agentOver("get", "default", agent.threadId);
    const runId = randomUUID();
    say(agent, "turn 4");
    finished(await once(agent, runId));
    await once(joined, runId);
    assert.deepEqual(said(joined), said(agent));
  },

  async "an agent object that goes on after an error"() {
    const agent = agentOver("post", "fail", randomUUID());
    say(agent, "one");
    assert.equal((await once(agent, randomUUID())).end.type, "RUN_ERROR");
    agent.url = `${baseUrl}/agui/echo`;
    say(agent, "two");
    finished(await once(agent, randomUUID()));
    assert.equal(said(agent).at(-1).trim(), "two");
  },
};

const report = {};
for (const [name, scenario] of Object.entries(scenarios)) {
  warnings = [];
  try {
    await scenario();
    report[name] = "ok";
  } catch (error) {
    report[name] = error.stack;
  }
}
process.stdout.write(`${JSON.stringify(report)}\n`);
