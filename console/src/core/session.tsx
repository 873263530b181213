// The key of this tab, and what it allows.

import { createContext } from "preact";
import { useContext } from "preact/hooks";

import type { Api, Caller, Role } from "./api";

export interface Session {
  api: Api;
  me: Caller;
  /** Ask for a key, because the API refused this one. */
  refused: () => void;
  /** Say that the server does not respond, or (false) that it does again. */
  away: (is: boolean) => void;
}

export const SessionContext = createContext<Session | null>(null);

export function useSession(): Session {
  const session = useContext(SessionContext);
  if (session === null) throw new Error("there is no session here");
  return session;
}

/** Whether the caller has a role. Controls that need another one are not shown. */
export function useMay(): (role: Role) => boolean {
  const { me } = useSession();
  return (role) => me.roles.includes(role);
}
