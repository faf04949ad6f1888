/** Plots of values by training step, drawn by uPlot. Loaded when the first one is shown. */

import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";

export interface Line {
  name: string;
  points: [number, number][];
}

/** A measured rate with its interval. */
export interface Mark {
  x: number;
  y: number;
  low: number;
  high: number;
  name: string;
}

export interface Shown {
  lines: Line[];
  marks: Mark[];
  /** The largest step, so that plots below each other have one axis. */
  steps: number;
  /** Whether the values are shares. */
  isShare: boolean;
}

export interface Drawn {
  /** Shows other values of the same lines. */
  show(next: Shown): void;
  remove(): void;
}

const FONT = "11px system-ui, sans-serif";
/** Distances of steps that are written below the axis. */
const DISTANCES = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((one) => one * 10 ** power)).flat();

/** The color that a class of the style sheet has now: a canvas knows no variables. */
function colorOf(host: HTMLElement, kind: string): string {
  const probe = document.createElement("i");
  probe.className = kind;
  host.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}

/** The values of lines and marks by step. */
function table({ lines, marks }: Shown): uPlot.AlignedData {
  const tables = lines.map(({ points }): uPlot.AlignedData => [points.map(([x]) => x), points.map(([, y]) => y)]);
  if (!marks.length && tables.length) return uPlot.join(tables);
  const rates = [...new Map(marks.map(({ x, y }) => [x, y]))].sort(([one], [other]) => one - other);
  return uPlot.join([...tables, [rates.map(([x]) => x), rates.map(([, y]) => y)]]);
}

function values({ lines, marks, isShare }: Shown): [number, number] {
  if (isShare) return [0, 1];
  const all = [...lines.flatMap((line) => line.points.map(([, y]) => y)), ...marks.map((mark) => mark.high)];
  return [all.reduce((least, one) => Math.min(least, one), 0), all.reduce((most, one) => Math.max(most, one), 0) || 1];
}

const format = (value: number, isShare: boolean) =>
  isShare ? `${Math.round(value * 100)} %` : value.toLocaleString(undefined, { maximumSignificantDigits: 4 });

/** What is below the pointer: the nearest value of each line, and the marks of the nearest step. */
function reading(plot: uPlot, { lines, marks, isShare }: Shown): string {
  const [steps, ...series] = plot.data;
  const { idx: nearest, idxs = [] } = plot.cursor;
  const step = nearest === null || nearest === undefined ? undefined : steps[nearest];
  if (step === undefined) return "";
  const found = lines.flatMap(({ name }, line) => {
    const at = idxs[line + 1] ?? -1;
    const value = series[line]?.[at];
    if (value === null || value === undefined) return [];
    return [`${name} ${format(value, isShare)}${steps[at] === step ? "" : ` (step ${steps[at]?.toLocaleString()})`}`];
  });
  return [`step ${step.toLocaleString()}`, ...found, ...marks.filter(({ x }) => x === step).map(({ name }) => name)].join(" · ");
}

function drawMarks(plot: uPlot, marks: Mark[], color: string) {
  const { ctx } = plot;
  const x = (value: number) => plot.valToPos(value, "x", true);
  const y = (value: number) => plot.valToPos(value, "y", true);
  ctx.save();
  [ctx.strokeStyle, ctx.fillStyle, ctx.lineWidth] = [color, color, 1.5 * devicePixelRatio];
  for (const mark of marks) {
    ctx.beginPath();
    ctx.moveTo(x(mark.x), y(mark.low));
    ctx.lineTo(x(mark.x), y(mark.high));
    ctx.stroke();
    ctx.beginPath();
    ctx.arc(x(mark.x), y(mark.y), 4 * devicePixelRatio, 0, 2 * Math.PI);
    ctx.fill();
  }
  ctx.restore();
}

/** Draws a plot that is as large as its element; `tell` is told what is below the pointer. */
export function draw(host: HTMLElement, first: Shown, tell: (text: string) => void): Drawn {
  let shown = first;
  const size = () => ({ width: Math.max(1, host.clientWidth), height: Math.max(1, host.clientHeight) });
  const color = (kind: string) => () => colorOf(host, kind);
  const axis = { font: FONT, stroke: color("quiet"), grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
  const plot = new uPlot(
    {
      ...size(),
      legend: { show: false },
      cursor: { y: false, drag: { x: false, y: false } },
      scales: {
        x: { time: false, range: () => [0, Math.max(shown.steps, 1)] },
        y: { range: () => values(shown) },
      },
      axes: [
        { ...axis, size: 28, space: 80, incrs: DISTANCES, values: (_, steps) => steps.map((step) => step.toLocaleString()) },
        { ...axis, size: 56, values: (_, ticks) => ticks.map((tick) => format(tick, shown.isShare)) },
      ],
      series: [
        {},
        ...first.lines.map((line, at) => {
          const own = color(`line-${at % 8}`);
          return { label: line.name, stroke: own, width: 1.5, points: { fill: own } };
        }),
        ...(first.marks.length || !first.lines.length ? [{ paths: () => null, points: { show: false } }] : []),
      ],
      hooks: {
        draw: [(self) => drawMarks(self, shown.marks, colorOf(host, "mark"))],
        setLegend: [(self) => tell(reading(self, shown))],
      },
    },
    table(first),
    host,
  );
  const resized = new ResizeObserver(() => plot.setSize(size()));
  resized.observe(host);
  const theme = matchMedia("(prefers-color-scheme: dark)");
  const redraw = () => plot.redraw(false, true);
  theme.addEventListener("change", redraw);
  return {
    show(next) {
      shown = next;
      plot.setData(table(next));
    },
    remove() {
      theme.removeEventListener("change", redraw);
      resized.disconnect();
      plot.destroy();
    },
  };
}
