// Every view: its name in the address, what it is about, and the role that its reads need. What the key does not allow
// is not shown.

import type { ComponentType } from "preact";

import type { Caller, Role } from "../core/api";
import type { Messages } from "../i18n";
import { Consolidation } from "./consolidation";
import { Conversation } from "./conversation";
import { Knowledge } from "./knowledge";
import { Memory } from "./memory";
import { Operations } from "./operations";
import { Search } from "./search";
import { Start } from "./start";
import { Tools } from "./tools";
import { Upkeep } from "./upkeep";

/** What a view gets: the app and the user of its address, as far as its scope has them. */
export interface ViewProps {
  app: string;
  user: string;
}

export interface View {
  name: keyof Messages["nav"];
  /** Of the whole installation, of an app, or of a user of an app. */
  scope: "installation" | "app" | "user";
  role: Role;
  component: ComponentType<ViewProps>;
}

export const VIEWS: readonly View[] = [
  { name: "start", scope: "installation", role: "read", component: Start },
  { name: "memory", scope: "user", role: "read", component: Memory },
  { name: "conversation", scope: "user", role: "read", component: Conversation },
  { name: "search", scope: "user", role: "read", component: Search },
  { name: "consolidation", scope: "user", role: "read", component: Consolidation },
  { name: "knowledge", scope: "app", role: "read", component: Knowledge },
  { name: "tools", scope: "app", role: "read", component: Tools },
  { name: "upkeep", scope: "app", role: "admin", component: Upkeep },
  { name: "operations", scope: "installation", role: "read", component: Operations },
];

/** Whether a key may see a view. Start leads a key of one app or one user to what is theirs. */
export function isAllowed(view: View, me: Caller): boolean {
  if (!me.roles.includes(view.role)) return false;
  if (view.name === "start") return me.user_id === null;
  if (view.scope === "installation") return me.app_name === null;
  return view.scope === "user" || me.user_id === null;
}
