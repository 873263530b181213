// Follows one run. A ticket is valid for one connection, so each new connection gets another one, and names the last
// frame that arrived: no frame is repeated or missed.

const TERMINAL = new Set(["RUN_FINISHED", "RUN_ERROR"]);
const RETRY_SECONDS = [0.5, 1, 2, 4, 8];

export class RunStream {
  #api;
  #thread;
  #source = null;
  #timer = null;
  #offset = null;
  #tries = 0;
  #closed = false;
  #tell;

  /**
   * @param tell {event(event, id), connected(), cut(words), failed(error)}: failed means that nothing more comes.
   */
  constructor(api, thread, run, tell) {
    this.#api = api;
    this.#thread = thread;
    this.run = run;
    this.#tell = tell;
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
      if (error.kind === "away") this.#comeBack();
      else this.#fail(error);
      return;
    }
    if (this.#closed) return;
    const source = new EventSource(url);
    this.#source = source;
    source.onopen = () => {
      this.#tries = 0;
      this.#tell.connected();
    };
    source.onmessage = (message) => this.#hear(message);
    source.onerror = () => {
      // EventSource would reconnect with the ticket that was used up.
      source.close();
      if (!this.#closed) this.#comeBack();
    };
  }

  #hear(message) {
    if (message.lastEventId) this.#offset = message.lastEventId;
    const event = JSON.parse(message.data);
    if (TERMINAL.has(event.type)) this.close();
    this.#tell.event(event, message.lastEventId);
  }

  #comeBack() {
    const seconds = RETRY_SECONDS[Math.min(this.#tries, RETRY_SECONDS.length - 1)];
    this.#tries += 1;
    this.#tell.cut(`The stream was interrupted. Retrying in ${seconds} s.`);
    this.#timer = setTimeout(() => this.#open(), seconds * 1000 * (0.8 + 0.4 * Math.random()));
  }

  #fail(error) {
    this.close();
    this.#tell.failed(error);
  }
}
