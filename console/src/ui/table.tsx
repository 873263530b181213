// A table that scrolls within its panel.

import type { ComponentChildren } from "preact";

export interface Column<Row> {
  /** Of the head; without any title the table has no head. */
  title?: string;
  /** Says more about the title. */
  note?: string;
  /** Aligned to the right, in figures of equal width. */
  isNumber?: boolean;
  /** What is in it decides its direction: names and texts that people gave. */
  isText?: boolean;
  cell: (row: Row) => ComponentChildren;
}

interface Props<Row> {
  id?: string;
  columns: readonly Column<Row>[];
  rows: readonly Row[];
  keyOf: (row: Row, index: number) => string | number;
  class?: string;
  /** Of the scrolling frame. */
  frame?: string;
  /** The name of a frame that is reached with the keyboard, since nothing in it is. */
  label?: string;
}

/** Nothing, if there are no rows. */
export function Table<Row>({ id, columns, rows, keyOf, class: extra, frame = "", label }: Props<Row>) {
  if (rows.length === 0) return null;
  const hasHead = columns.some((each) => each.title !== undefined);
  const focusable = label === undefined ? {} : { tabIndex: 0, role: "region" as const, "aria-label": label };
  return (
    <div class={`table-scroll ${frame}`} {...focusable}>
      <table id={id} class={extra}>
        {hasHead && (
          <thead>
            <tr>
              {columns.map(({ title, note, isNumber }) => (
                <th key={title} scope="col" class={isNumber ? "number" : undefined} title={note}>
                  {title}
                </th>
              ))}
            </tr>
          </thead>
        )}
        <tbody>
          {rows.map((row, nth) => (
            <tr key={keyOf(row, nth)}>
              {columns.map(({ title, isNumber, isText, cell }, place) => (
                <td key={title ?? place} class={isNumber ? "number" : undefined} dir={isText ? "auto" : undefined}>
                  {cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
