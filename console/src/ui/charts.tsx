// Small charts, drawn as SVG. Each has a text for readers who do not see it.

import type { ComponentChildren } from "preact";

import { useWidth } from "../core/hooks";
import type { Tone } from "./basics";

export type Point = readonly [x: number, y: number];

interface Scale {
  (value: number): number;
}

function scale(from: readonly [number, number], to: readonly [number, number]): Scale {
  const span = from[1] - from[0] || 1;
  return (value) => to[0] + ((value - from[0]) / span) * (to[1] - to[0]);
}

function line(points: readonly Point[], x: Scale, y: Scale): string {
  return points.map(([at, value], index) => `${index ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

function bounds(values: readonly number[]): [number, number] {
  return [Math.min(...values), Math.max(...values)];
}

export interface LineProps {
  label: string;
  points: readonly Point[];
  /** Drawn lightly, such as a forecast. */
  dashedFrom?: number;
  /** The range of the vertical axis; by default from 0 to the largest value. */
  range?: readonly [number, number];
  height?: number;
  /** Horizontal lines, such as a threshold. */
  levels?: readonly { value: number; text: string }[];
  /** Vertical marks, such as now. */
  marks?: readonly { at: number; text: string }[];
  formatX: (value: number) => string;
  formatY: (value: number) => string;
}

const LEFT = 40;
const RIGHT = 12;
const TOP = 18;
const BOTTOM = 22;

/** A curve over time or another quantity, with its axes. */
export function LineChart({ label, points, dashedFrom, range, height = 180, levels = [], marks = [], formatX, formatY }: LineProps) {
  const [box, width] = useWidth<HTMLDivElement>();
  const xs = bounds([...points.map(([at]) => at), ...marks.map(({ at }) => at)]);
  const ys = range ?? ([0, Math.max(...points.map(([, value]) => value), Number.MIN_VALUE)] as const);
  const x = scale(xs, [LEFT, Math.max(width - RIGHT, LEFT + 1)]);
  const y = scale(ys, [height - BOTTOM, TOP]);
  const solid = dashedFrom === undefined ? points : points.filter(([at]) => at <= dashedFrom);
  const dashed = dashedFrom === undefined ? [] : points.filter(([at]) => at >= dashedFrom);
  const firstAt = points[0]?.[0] ?? 0;
  const lastAt = points[points.length - 1]?.[0] ?? 0;
  const area = points.length > 1 ? `${line(points, x, y)}L${x(lastAt)} ${y(ys[0])}L${x(firstAt)} ${y(ys[0])}Z` : "";
  return (
    <div ref={box} class="chart">
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          {[ys[0], (ys[0] + ys[1]) / 2, ys[1]].map((value) => (
            <g key={value}>
              <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
              <text class="tick" x={LEFT - 6} y={y(value) + 4} text-anchor="end">
                {formatY(value)}
              </text>
            </g>
          ))}
          <path class="area" d={area} />
          {levels.map((each) => (
            <g key={each.text}>
              <line class="level" x1={LEFT} x2={width - RIGHT} y1={y(each.value)} y2={y(each.value)} />
              <text class="tick" x={width - RIGHT} y={y(each.value) - 4} text-anchor="end">
                {each.text}
              </text>
            </g>
          ))}
          <path class="curve" d={line(solid, x, y)} />
          <path class="curve dashed" d={line(dashed, x, y)} />
          {marks.map((each) => (
            <g key={each.text}>
              <line class="mark" x1={x(each.at)} x2={x(each.at)} y1={TOP} y2={height - BOTTOM} />
              <text
                class="tick"
                x={x(each.at)}
                y={TOP - 6}
                text-anchor={x(each.at) > width - 70 ? "end" : x(each.at) < 90 ? "start" : "middle"}
              >
                {each.text}
              </text>
            </g>
          ))}
          <text class="tick" x={LEFT} y={height - 6}>
            {formatX(xs[0])}
          </text>
          <text class="tick" x={width - RIGHT} y={height - 6} text-anchor="end">
            {formatX(xs[1])}
          </text>
        </svg>
      )}
    </div>
  );
}

export interface Bar {
  name: string;
  value: number;
  /** Shown beside the bar; the value by default. */
  text?: string;
  tone?: Tone;
}

/** Horizontal bars with their names: parts of a score, or shares. */
export function Bars({ label, bars, max }: { label: string; bars: readonly Bar[]; max?: number }) {
  const most = max ?? Math.max(...bars.map((each) => each.value), Number.MIN_VALUE);
  return (
    <ul class="bars" aria-label={label}>
      {bars.map((each) => (
        <li key={each.name}>
          <span class="bar-name">{each.name}</span>
          <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
            <rect class="track" width="100" height="8" rx="2" />
            <rect class={`bar ${each.tone ?? "accent"}`} width={Math.max(0, Math.min(100, (100 * each.value) / most))} height="8" rx="2" />
          </svg>
          <span class="bar-value">{each.text ?? String(each.value)}</span>
        </li>
      ))}
    </ul>
  );
}

/** Counts by time, such as jobs per hour. */
export function Columns({
  label,
  columns,
  height = 72,
}: {
  label: string;
  columns: readonly { name: string; value: number; bad?: number }[];
  height?: number;
}) {
  const [box, width] = useWidth<HTMLDivElement>();
  const most = Math.max(...columns.map((each) => each.value + (each.bad ?? 0)), 1);
  const step = width / Math.max(columns.length, 1);
  const y = scale([0, most], [0, height - 2]);
  return (
    <div ref={box} class="chart">
      {width > 0 && (
        <svg width={width} height={height} role="img" aria-label={label}>
          <line class="grid" x1="0" x2={width} y1={height - 0.5} y2={height - 0.5} />
          {columns.map((each, index) => (
            <g key={each.name}>
              <title>{`${each.name}: ${each.value}${each.bad ? ` + ${each.bad}` : ""}`}</title>
              <rect class="hit" x={index * step} y="0" width={step} height={height} />
              <rect class="bar accent" x={index * step + 1} y={height - y(each.value)} width={Math.max(step - 2, 1)} height={y(each.value)} rx="1" />
              <rect
                class="bar bad"
                x={index * step + 1}
                y={height - y(each.value + (each.bad ?? 0))}
                width={Math.max(step - 2, 1)}
                height={y(each.bad ?? 0)}
                rx="1"
              />
            </g>
          ))}
        </svg>
      )}
    </div>
  );
}

export interface Span {
  key: string;
  from: number;
  to: number;
  text: string;
  tone?: Tone;
  /** It has no end: it is drawn beyond the edge. */
  open?: boolean;
}

export interface Lane {
  key: string;
  name: ComponentChildren;
  spans: readonly Span[];
}

/** Intervals on lanes over one axis of time; `at` is marked. */
export function Timeline({
  label,
  lanes,
  from,
  to,
  at,
  format,
}: {
  label: string;
  lanes: readonly Lane[];
  from: number;
  to: number;
  at?: number;
  format: (value: number) => string;
}) {
  const x = scale([from, to], [0, 100]);
  const clamp = (value: number) => Math.min(Math.max(x(value), 0), 100);
  return (
    <div class="timeline-chart" role="group" aria-label={label}>
      {lanes.map((lane) => (
        <div key={lane.key} class="lane">
          <div class="lane-name">{lane.name}</div>
          <ul class="lane-track">
            {lane.spans.map((span) => (
              <li
                key={span.key}
                class={`span ${span.tone ?? "accent"}${span.open ? " open" : ""}`}
                title={`${span.text}: ${format(span.from)} – ${span.open ? "…" : format(span.to)}`}
                style={{ left: `${Math.min(clamp(span.from), 98)}%`, width: `${Math.max(clamp(span.to) - Math.min(clamp(span.from), 98), 1)}%` }}
              >
                <span>{span.text}</span>
              </li>
            ))}
            {at !== undefined && <li class="at" aria-hidden="true" style={{ left: `${clamp(at)}%` }} />}
          </ul>
        </div>
      ))}
      <div class="lane axis" aria-hidden="true">
        <div class="lane-name" />
        <div class="lane-track">
          <span>{format(from)}</span>
          <span>{format(to)}</span>
        </div>
      </div>
    </div>
  );
}
