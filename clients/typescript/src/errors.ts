// Everything that the client throws, apart from the reason of a caller's own AbortSignal.
//
// ClientError
// ├── ConnectionFailedError   no response: refused or disconnected; the request may have been executed
// │   └── TimedOutError       no response in time
// ├── JobEndedError           a job that was waited for has failed or was cancelled
// └── ProblemError            the API returned a problem
//     ├── KeyRefusedError     401, 403
//     ├── NotFoundError       404, 410
//     ├── ConflictError       409, 412
//     ├── InvalidRequestError 400, 405, 413, 415, 422
//     └── UnavailableError    429, 502, 503, 504

import type { components } from "./schema.js";

type Schemas = components["schemas"];

/** Base of every error of the client. */
export class ClientError extends Error {
  override name = this.constructor.name;
}

/** There was no response. Repeat an append with the same event ids; check the outcome of other calls. */
export class ConnectionFailedError extends ClientError {}

/** There was no response within the call's time, or a job had not ended. */
export class TimedOutError extends ConnectionFailedError {}

/** A job that was waited for did not complete. `job` says why. */
export class JobEndedError extends ClientError {
  constructor(readonly job: Schemas["JobView"]) {
    super(`job ${job.id} is ${job.status}${job.error === null ? "" : `: ${job.error}`}`);
  }
}

/** The API returned a problem (RFC 9457). Branch on `type`; report `requestId` to the API's operator. */
export class ProblemError extends ClientError {
  /** Such as /problems/version-conflict; about:blank if the response came from something between. */
  readonly type: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
  /** The fields that are wrong, if any. */
  readonly errors: readonly Schemas["FieldError"][];

  constructor(status: number, problem: Partial<Schemas["Problem"]>) {
    const type = problem.type ?? "about:blank";
    const detail = problem.detail ?? `the response has status ${status} and is not a problem of this API`;
    super(`${detail} (${type}, ${status})`);
    this.type = type;
    this.status = status;
    this.detail = detail;
    this.requestId = problem.request_id ?? "";
    this.errors = problem.errors ?? [];
  }
}

/** The key is missing, wrong, belongs to another app or user, or lacks the role. Retrying does not help. */
export class KeyRefusedError extends ProblemError {}

/** The app and user have no such object, or it is no longer kept. */
export class NotFoundError extends ProblemError {}

/** The session has changed, or an id is taken. Read again, redo the change, send it again. */
export class ConflictError extends ProblemError {}

/** The request is wrong; nothing was changed. Fix what `detail` names. */
export class InvalidRequestError extends ProblemError {}

/** The API cannot serve the request now. Repeatable calls were already retried. */
export class UnavailableError extends ProblemError {}

const BY_STATUS: ReadonlyMap<number, typeof ProblemError> = new Map([
  ...[401, 403].map((status) => [status, KeyRefusedError] as const),
  ...[404, 410].map((status) => [status, NotFoundError] as const),
  ...[409, 412].map((status) => [status, ConflictError] as const),
  ...[400, 405, 413, 415, 422].map((status) => [status, InvalidRequestError] as const),
  ...[429, 502, 503, 504].map((status) => [status, UnavailableError] as const),
]);

/** Return the error of a response. */
export async function problemOf(response: Response): Promise<ProblemError> {
  const isProblem = response.headers.get("content-type")?.startsWith("application/problem+json");
  const problem: unknown = isProblem ? await response.json().catch(() => null) : null;
  const kind = BY_STATUS.get(response.status) ?? ProblemError;
  return new kind(response.status, typeof problem === "object" && problem !== null ? problem : {});
}
