// Lists of which only the visible rows exist in the document: ten thousand rows scroll like ten.

import {
  elementScroll,
  observeElementOffset,
  observeElementRect,
  type PartialKeys,
  Virtualizer,
  type VirtualizerOptions,
} from "@tanstack/virtual-core";
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";

type Options = PartialKeys<
  VirtualizerOptions<HTMLElement, HTMLElement>,
  "observeElementRect" | "observeElementOffset" | "scrollToFn"
>;

function useVirtualizer(options: Options): Virtualizer<HTMLElement, HTMLElement> {
  const [, update] = useReducer((count: number) => count + 1, 0);
  const complete: VirtualizerOptions<HTMLElement, HTMLElement> = {
    observeElementRect,
    observeElementOffset,
    scrollToFn: elementScroll,
    ...options,
    onChange: () => update(undefined),
  };
  const [virtualizer] = useState(() => new Virtualizer<HTMLElement, HTMLElement>(complete));
  virtualizer.setOptions(complete);
  useLayoutEffect(() => virtualizer._didMount(), []);
  useLayoutEffect(() => virtualizer._willUpdate());
  return virtualizer;
}

interface ListProps<Row> {
  rows: readonly Row[];
  keyOf: (row: Row) => string;
  render: (row: Row, index: number) => ComponentChildren;
  /** An expected height in pixels; rows are measured. */
  estimate: number;
  label: string;
  /** Keep the end in view while the reader is there, as in a conversation. */
  atEnd?: boolean;
  /** Begin at the row with this key, as soon as it is there. */
  target?: string | null;
  /** Called when the reader comes near the end, or (`atEnd`) the start. */
  nearEdge?: (() => void) | undefined;
  /** With `atEnd`, called near the end, while further rows follow; then the end is not kept in view. */
  nearEnd?: (() => void) | undefined;
  /** Shown before the first row and after the last one. */
  before?: ComponentChildren;
  after?: ComponentChildren;
  class?: string;
  id?: string;
  role?: "list" | "log";
  busy?: boolean;
}

const NEAR_ROWS = 10;
const PLACING_MS = 250;

export function VirtualList<Row>({
  rows,
  keyOf,
  render,
  estimate,
  label,
  atEnd = false,
  target = null,
  nearEdge,
  nearEnd,
  before,
  after,
  class: extra = "",
  id,
  role = "list",
  busy = false,
}: ListProps<Row>) {
  const box = useRef<HTMLDivElement>(null);
  const virtualizer = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => estimate,
    getItemKey: (index) => {
      const row = rows[index];
      return row === undefined ? index : keyOf(row);
    },
    overscan: 8,
    ...(atEnd ? { anchorTo: "end" as const, followOnAppend: nearEnd === undefined } : {}),
  });
  const items = virtualizer.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items[items.length - 1]?.index ?? 0;
  const isNearEnd = last >= rows.length - NEAR_ROWS;
  const isNear = atEnd ? first < NEAR_ROWS : isNearEnd;
  // The list is put where it begins before further rows are asked for.
  const hasRows = rows.length > 0;
  const [isPlaced, setPlaced] = useState(false);
  useEffect(() => {
    if (!hasRows) return undefined;
    const timer = setTimeout(() => setPlaced(true), PLACING_MS);
    return () => clearTimeout(timer);
  }, [hasRows]);
  useEffect(() => {
    if (isPlaced && hasRows && isNear) nearEdge?.();
  }, [isPlaced, isNear, rows.length]);
  const hasFurther = nearEnd !== undefined;
  useEffect(() => {
    if (isPlaced && hasRows && isNearEnd) nearEnd?.();
  }, [isPlaced, isNearEnd, rows.length, hasFurther]);
  useLayoutEffect(() => {
    if (atEnd && hasRows && target === null) virtualizer.scrollToEnd();
  }, [hasRows]);
  useLayoutEffect(() => {
    const index = target === null ? -1 : rows.findIndex((row) => keyOf(row) === target);
    if (index >= 0) virtualizer.scrollToIndex(index, { align: "center" });
  }, [target]);
  const isLog = role === "log";
  const body = (
    <div class="virtual-space" role={isLog ? undefined : "presentation"} style={{ height: `${virtualizer.getTotalSize()}px` }}>
      {items.map((item) => {
        const row = rows[item.index];
        if (row === undefined) return null;
        return (
          <div
            key={item.key}
            data-index={item.index}
            ref={(element) => {
              if (element) virtualizer.measureElement(element);
            }}
            class="virtual-row"
            role={isLog ? undefined : "listitem"}
            aria-setsize={isLog ? undefined : rows.length}
            aria-posinset={isLog ? undefined : item.index + 1}
            style={{ transform: `translateY(${item.start}px)` }}
          >
            {render(row, item.index)}
          </div>
        );
      })}
    </div>
  );
  return (
    <div ref={box} id={id} class={`virtual ${extra}`} tabIndex={0} role={isLog ? "log" : "group"} aria-label={label} aria-busy={busy}>
      {before}
      {isLog || !hasRows ? body : <div role="list" aria-label={label}>{body}</div>}
      {after}
    </div>
  );
}
