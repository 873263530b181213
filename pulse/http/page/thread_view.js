// The selected thread: its timeline, the stream of its newest run, its state.

import { RunStream } from "./run_stream.js";
import { StatePanel } from "./state_panel.js";
import { Timeline } from "./timeline.js";

const OUTCOMES = { completed: "completed", failed: "failed", cancelled: "cancelled" };

export class ThreadView {
  #api;
  #parts;
  #failed;
  #thread;
  #seen = null;
  #timeline;
  #state;
  #stream = null;

  /** @param parts {timeline, state, log, status}; `failed(error)` is called with what could not be read. */
  constructor(api, thread, parts, failed) {
    this.#api = api;
    this.#thread = thread;
    this.#parts = parts;
    this.#failed = failed;
    this.id = thread.thread_id;
    this.#timeline = new Timeline(api, this.id, thread.last_sequence, parts.timeline, failed);
    this.#state = new StatePanel(api, this.id, parts.state, failed);
    parts.log.clear();
    parts.status.textContent = "";
    this.update(thread);
  }

  close() {
    this.#stream?.close();
    this.#timeline.close();
    this.#state.close();
  }

  /** Show what changed in this thread's entry in the list of threads. */
  update(thread) {
    this.#thread = thread;
    const run = thread.newest_run;
    if (run && run.run_id !== this.#stream?.run) this.#follow(run);
    if (thread.last_sequence !== this.#seen) {
      this.#seen = thread.last_sequence;
      this.#timeline.refresh();
      this.#state.refresh();
    }
    if (!run) this.#say("quiet", "No run yet");
  }

  #follow(run) {
    this.#stream?.close();
    this.#parts.log.clear();
    // The messages of a run that is over are in the timeline.
    const wasRunning = run.status === "running";
    this.#say(run.status, wasRunning ? "Run is live" : `Run ${OUTCOMES[run.status]}${run.error ? `: ${run.error}` : ""}`);
    this.#stream = new RunStream(this.#api, this.id, run.run_id, {
      connected: () => wasRunning && this.#say("running", "Run is live"),
      event: (event, position) => this.#receive(event, position, wasRunning),
      cut: (words) => this.#cut(words),
      failed: (error) => this.#failed(error),
    });
  }

  #receive(event, position, wasRunning) {
    this.#parts.log.add(event, position);
    if (!wasRunning) return;
    this.#timeline.receive(event, position);
    if (event.type.startsWith("STATE_")) this.#state.refresh();
    if (event.type === "RUN_ERROR") this.#say("failed", `Run failed: ${event.message}`);
    if (event.type === "RUN_FINISHED") this.#finish(event.outcome);
  }

  #finish(outcome) {
    this.#state.refresh();
    if (outcome?.type === "cancelled") this.#say("cancelled", "Run cancelled");
    else if (outcome?.type === "interrupt") this.#say("waiting", "Run waits for an answer");
    else this.#say("completed", "Run completed");
  }

  #cut(words) {
    const run = this.#thread.newest_run;
    if (run && run.run_id === this.#stream?.run && run.status !== "running") {
      // It is over, and its events may have been pruned: the timeline has its messages.
      this.#stream.close();
      this.#say(run.status, `Run ${OUTCOMES[run.status]}`);
      this.#timeline.refresh();
      return;
    }
    this.#say("cut", words);
  }

  #say(status, words) {
    const { status: element } = this.#parts;
    if (element.textContent !== words) element.textContent = words;
    element.className = `status ${status}`;
  }
}
