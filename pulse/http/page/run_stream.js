// Follows one run. A ticket expires, so each connection gets a new one. It names the last frame that arrived, so no frame
// is repeated or missed.

const TERMINAL = new Set(["RUN_FINISHED", "RUN_ERROR"]);
const RETRY_SECONDS = [0.5, 1, 2, 4, 8];

export class RunStream {
  #api;
  #thread;
  #source = null;
  #timer = null;
  #offset = null;
  #attempts = 0;
  #closed = false;
  #callbacks;

  /**
   * @param callbacks {event(event, id), connected(), cut(words), failed(error)}: failed means that nothing more comes.
   */
  constructor(api, thread, run, callbacks) {
    this.#api = api;
    this.#thread = thread;
    this.run = run;
    this.#callbacks = callbacks;
    this.#open();
  }

  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.#source?.close();
  }

  async #open() {
    let url;
    try {
      url = await this.#api.streamUrl(this.#thread, this.run, this.#offset);
    } catch (error) {
      if (this.#closed) return;
      if (error.kind === "away") this.#reconnect();
      else this.#fail(error);
      return;
    }
    if (this.#closed) return;
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#attempts = 0;
      this.#callbacks.connected();
    };
    source.onmessage = (message) => this.#receive(message);
    source.onerror = () => {
      // EventSource would reconnect with a ticket that may have expired, and give up at the refusal.
      source.close();
      if (!this.#closed) this.#reconnect();
    };
  }

  #receive(message) {
    if (message.lastEventId) this.#offset = message.lastEventId;
    const event = JSON.parse(message.data);
    if (TERMINAL.has(event.type)) this.close();
    this.#callbacks.event(event, message.lastEventId);
  }

  #reconnect() {
    const seconds = RETRY_SECONDS[Math.min(this.#attempts, RETRY_SECONDS.length - 1)];
    this.#attempts += 1;
    this.#callbacks.cut(`The stream was interrupted. Retrying in ${seconds} s.`);
    this.#timer = setTimeout(() => this.#open(), seconds * 1000 * (0.8 + 0.4 * Math.random()));
  }

  #fail(error) {
    this.close();
    this.#callbacks.failed(error);
  }
}
