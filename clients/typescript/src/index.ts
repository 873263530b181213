export {
  type Added,
  type AskOptions,
  type CancelOptions,
  type ContextOptions,
  type FactFilter,
  type FollowOptions,
  Hippocampus,
  type HippocampusOptions,
  type JobFilter,
  type MemoryFilter,
  type Message,
  type ProfileOptions,
  type RecallOptions,
  type RunAgentOptions,
  type RunInput,
  type Schemas,
  type SearchOptions,
  type TicketOptions,
  type TicketRequest,
} from "./client.js";
export {
  ClientError,
  ConflictError,
  ConnectionFailedError,
  InvalidRequestError,
  JobEndedError,
  KeyRefusedError,
  NotFoundError,
  ProblemError,
  TimedOutError,
  UnavailableError,
} from "./errors.js";
export type { components, paths } from "./schema.js";
export { type AgUiEvent, EventStream, RunStream, SessionStream, type StreamOptions } from "./stream.js";
export type { CallOptions, Fetch, RetryOptions } from "./transport.js";
