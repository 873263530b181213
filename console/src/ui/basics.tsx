// The small parts of every view.

import type { ButtonHTMLAttributes, ComponentChildren, RefObject } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

import type { ApiError } from "../core/api";
import { type Load, useOpened } from "../core/hooks";
import { Link } from "../core/router";
import { useWords } from "../i18n";

type Children = { children?: ComponentChildren };

/** The head of a view: its title, what it is about, and what can be done. */
export function ViewHead({ title, lead, actions }: { title: ComponentChildren; lead?: ComponentChildren; actions?: ComponentChildren }) {
  return (
    <div class="view-head">
      <div>
        <h1>{title}</h1>
        {lead && <p class="lead">{lead}</p>}
      </div>
      {actions && <div class="actions">{actions}</div>}
    </div>
  );
}

/** A titled part of a view. */
export function Panel({
  title,
  aside,
  children,
  class: extra = "",
  flush = false,
  opened = false,
}: Children & {
  title?: ComponentChildren;
  aside?: ComponentChildren;
  class?: string;
  flush?: boolean;
  /** A detail that the reader opened: it takes the focus; see `useOpened`. */
  opened?: boolean;
}) {
  const id = useId();
  const element = useOpened<HTMLElement>(opened);
  return (
    <section ref={element} class={`panel ${extra}`} aria-labelledby={title ? id : undefined} tabIndex={opened ? -1 : undefined}>
      {title && (
        <header class="panel-head">
          <h2 id={id}>{title}</h2>
          {aside && <div class="aside">{aside}</div>}
        </header>
      )}
      <div class={flush ? "panel-body flush" : "panel-body"}>{children}</div>
    </section>
  );
}

/** A figure with its name. */
export function Stat({ label, value, note }: { label: string; value: ComponentChildren; note?: ComponentChildren }) {
  return (
    <div class="stat">
      <dt>{label}</dt>
      <dd>
        <span class="figure">{value}</span>
        {note && <span class="note">{note}</span>}
      </dd>
    </div>
  );
}

export function Stats({ children }: Children) {
  return <dl class="stats">{children}</dl>;
}

export type Tone = "plain" | "good" | "warn" | "bad" | "live" | "accent";

export function Badge({ tone = "plain", title, children }: Children & { tone?: Tone; title?: string }) {
  return (
    <span class={`badge ${tone}`} title={title}>
      {children}
    </span>
  );
}

type ButtonProps = Omit<ButtonHTMLAttributes<HTMLButtonElement>, "class"> & {
  kind?: "plain" | "primary" | "danger" | "quiet";
  small?: boolean;
};

export function Button({ kind = "plain", small = false, children, ...rest }: ButtonProps) {
  return (
    <button type="button" {...rest} class={`button ${kind}${small ? " small" : ""}`}>
      {children}
    </button>
  );
}

export function Time({ value, relative = false }: { value: string | number; relative?: boolean }) {
  const { time, ago } = useWords();
  const at = new Date(value);
  return (
    <time dateTime={at.toISOString()} title={relative ? time(value) : at.toISOString()}>
      {relative ? ago(value) : time(value)}
    </time>
  );
}

/** A JSON value as text, on one line if it is short. */
export function json(value: unknown): string {
  const short = JSON.stringify(value);
  return short === undefined || short.length <= 60 ? String(short) : JSON.stringify(value, null, 2);
}

/** A value as people read it: a text without quotes, a list with commas, else JSON. */
export function valueText(value: unknown): string {
  if (typeof value === "string") return value;
  if (Array.isArray(value) && value.every((each) => typeof each === "string" || typeof each === "number")) {
    return value.join(", ");
  }
  return json(value);
}

const FOLDED_LENGTH = 600;

/** A long text is folded. */
export function Folded({ text, class: extra = "" }: { text: string; class?: string }) {
  const { t } = useWords();
  const [open, setOpen] = useState(false);
  const isLong = text.length > FOLDED_LENGTH || text.split("\n", 14).length > 12;
  const shown = isLong && !open ? `${text.split("\n", 12).join("\n").slice(0, FOLDED_LENGTH)} …` : text;
  return (
    <>
      <pre class={extra} dir="auto">
        {shown}
      </pre>
      {isLong && (
        <Button kind="quiet" small aria-expanded={open} onClick={() => setOpen(!open)}>
          {open ? t.common.showLess : t.common.showAll(text.length)}
        </Button>
      )}
    </>
  );
}

export function Loading() {
  const { t } = useWords();
  return (
    <p class="state loading" role="status">
      <span class="spinner" aria-hidden="true" /> {t.common.loading}
    </p>
  );
}

export function Empty({ title, children }: Children & { title: string }) {
  return (
    <div class="state empty">
      <p class="state-title">{title}</p>
      {children && <p>{children}</p>}
    </div>
  );
}

export function ErrorBox({ error, retry }: { error: ApiError; retry?: () => void }) {
  const { t } = useWords();
  return (
    <div class="state error" role="alert">
      <p>{error.kind === "away" ? t.common.away : error.kind === "forbidden" ? t.common.forbidden : error.message}</p>
      {error.kind !== "away" && error.kind !== "forbidden" ? null : error.message && <p class="note">{error.message}</p>}
      {retry && <Button onClick={retry}>{t.common.retry}</Button>}
    </div>
  );
}

/** The answer of a read, or that it is on its way, or why there is none. */
export function Loaded<T>({ of, children }: { of: Load<T>; children: (data: T) => ComponentChildren }) {
  if (of.data !== null) return <>{children(of.data)}</>;
  if (of.error !== null) return <ErrorBox error={of.error} retry={of.reload} />;
  return of.loading ? <Loading /> : null;
}

/** Views beside each other, each with its address. */
export function Tabs({ label, items }: { label: string; items: { to: string; text: ComponentChildren; current: boolean }[] }) {
  return (
    <nav class="tabs" aria-label={label}>
      {items.map((each) => (
        <Link key={each.to} to={each.to} aria-current={each.current ? "page" : undefined}>
          {each.text}
        </Link>
      ))}
    </nav>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onValue: (value: string) => void;
  hideLabel?: boolean;
  field?: RefObject<HTMLInputElement | null>;
  type?: "text" | "search" | "password" | "number" | "datetime-local" | "date";
  name?: string;
  placeholder?: string;
  required?: boolean;
  maxLength?: number;
  min?: number | string;
  max?: number | string;
  step?: number | string;
  "aria-describedby"?: string;
}

export function Field({ label, onValue, hideLabel = false, field, type = "text", ...rest }: FieldProps) {
  const given = { type, ...rest } as { type: "text" };
  return (
    <label class="field">
      <span class={hideLabel ? "hidden-text" : "label"}>{label}</span>
      <input
        autocomplete="off"
        spellcheck={false}
        {...given}
        {...(field ? { ref: field } : {})}
        onInput={(event) => onValue(event.currentTarget.value)}
      />
    </label>
  );
}

/** A dialog over the page; Escape closes it, and focus returns to where it was. */
export function Dialog({
  title,
  close,
  children,
  footer,
}: Children & { title: string; close: () => void; footer?: ComponentChildren }) {
  const { t } = useWords();
  const element = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      if (before instanceof HTMLElement) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={element}
      class="dialog"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        close();
      }}
    >
      <header class="panel-head">
        <h2 id={id}>{title}</h2>
        <Button kind="quiet" small aria-label={t.common.close} onClick={close}>
          ✕
        </Button>
      </header>
      <div class="dialog-body">{children}</div>
      {footer && <footer class="dialog-foot">{footer}</footer>}
    </dialog>
  );
}

/** A share from 0 to 1 as a bar with its figure. */
export function Meter({ value, label, tone = "accent" }: { value: number; label: string; tone?: Tone }) {
  const { number } = useWords();
  const share = Math.min(Math.max(value, 0), 1);
  return (
    <span class="meter" role="img" aria-label={`${label}: ${number(value, 2)}`}>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">
        <rect class="track" width="100" height="6" rx="3" />
        <rect class={`bar ${tone}`} width={100 * share} height="6" rx="3" />
      </svg>
      <span aria-hidden="true">{number(value, 2)}</span>
    </span>
  );
}
