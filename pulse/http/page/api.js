// Calls the HTTP API on behalf of one user of one app. The key is kept only here, in memory.

const TIMEOUT_MILLISECONDS = 15_000;

/** A failed call with its message. `kind`: key, away, missing or refused. */
export class ApiError extends Error {
  constructor(kind, message) {
    super(message);
    this.kind = kind;
  }
}

export class Api {
  #key;

  constructor(app, user, key) {
    this.app = app;
    this.user = user;
    this.#key = key;
  }

  threads() {
    return this.#call("GET", "api/threads?limit=100");
  }

  timeline(thread, after, limit) {
    const query = `after_sequence=${after}&limit=${limit}`;
    return this.#call("GET", `conversations/${encodeURIComponent(thread)}/messages?${query}`);
  }

  state(thread) {
    return this.#call("GET", `api/threads/${encodeURIComponent(thread)}/state`);
  }

  history(thread, cursor) {
    const from = cursor === null ? "" : `&cursor=${encodeURIComponent(cursor)}`;
    return this.#call("GET", `api/threads/${encodeURIComponent(thread)}/state/history?limit=50${from}`);
  }

  /** Return the URL at which an EventSource follows a run, from its start or after a frame; a ticket replaces the key. */
  async streamUrl(thread, run, offset) {
    const query = new URLSearchParams(offset === null ? {} : { offset });
    if (this.#key) {
      const { ticket } = await this.#call("POST", "api/tickets", { thread_id: thread, run_id: run });
      query.set("ticket", ticket);
    } else {
      query.set("app_name", this.app);
      query.set("user_id", this.user);
    }
    return `api/runs/${encodeURIComponent(run)}/events?${query}`;
  }

  async #call(method, path, body) {
    const headers = {
      "X-App-Name": encodeURIComponent(this.app),
      "X-User-Id": encodeURIComponent(this.user),
      ...(this.#key ? { Authorization: `Bearer ${this.#key}` } : {}),
      ...(body ? { "Content-Type": "application/json" } : {}),
    };
    const options = { method, headers, cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS) };
    let response;
    try {
      response = await fetch(path, body ? { ...options, body: JSON.stringify(body) } : options);
    } catch {
      throw new ApiError("away", "The server does not respond.");
    }
    if (!response.ok) throw await refusal(response);
    try {
      return await response.json();
    } catch {
      throw new ApiError("away", "The server's response was interrupted.");
    }
  }
}

async function refusal(response) {
  const problem = await response.json().catch(() => ({}));
  const type = String(problem.type ?? "");
  const message = [problem.title ?? `The server returned ${response.status}`, problem.detail].filter(Boolean).join(": ");
  if (type.endsWith("/wrong-key")) return new ApiError("key", message);
  if (response.status === 404 || response.status === 410) return new ApiError("missing", message);
  return new ApiError(response.status >= 500 || response.status === 429 ? "away" : "refused", message);
}
