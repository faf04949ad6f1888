/** Tables that pandas has printed. */

export interface Frame {
  columns: string[];
  rows: string[][];
  /** The line below the table, if there is one. */
  shape: string;
}

/** Longer texts stay texts. */
const MAX_LENGTH = 100_000;

/**
 * A text that is a printed frame and nothing else, as a table; `undefined` if there is a doubt. pandas aligns columns at their
 * ends, with two spaces between them, below a header without a name for the index. Cells that break these rules, frames that
 * are broken over several blocks, and all other texts stay as they are.
 */
export function frame(text: string): Frame | undefined {
  if (text.length > MAX_LENGTH || !text.startsWith(" ")) return undefined;
  let end = text.length;
  while (text[end - 1] === "\n") end--;
  const gap = text.lastIndexOf("\n\n", end - 1);
  const last = gap < 0 ? "" : text.slice(gap + 2, end);
  const shape = /^\[\d+ rows x \d+ columns\]$/.test(last) ? last : "";
  const lines = text.slice(0, shape ? gap : end).split("\n").map((line) => [...line]);
  const width = lines[0]?.length ?? 0;
  if (lines.length < 2 || lines.some((line) => line.length !== width || line.includes("\t"))) return undefined;
  const spans = columns(lines, width);
  const [index, ...others] = spans;
  if (!index || !others.length) return undefined;
  const cell = (line: string[], [from, to]: [number, number]) => line.slice(from, to).join("").trim();
  const [header, ...rows] = lines.map((line) => spans.map((span) => cell(line, span)));
  const isAligned = lines.every((line) => others.every(([, to]) => line[to - 1] !== " "));
  const hasIndex = header?.[0] === "" && lines.slice(1).every((line) => line[index[0]] !== " ");
  if (!header || !isAligned || !hasIndex || index[0] !== 0) return undefined;
  return { columns: header, rows, shape };
}

/** Where columns begin and end: two positions or more that are blank in all lines are between them. */
function columns(lines: string[][], width: number): [number, number][] {
  const isBlank = Array.from({ length: width }, (_, at) => lines.every((line) => line[at] === " "));
  const spans: [number, number][] = [];
  let from = 0;
  for (let at = 0; at < width; at++) {
    if (!isBlank[at] || !isBlank[at + 1]) continue;
    if (at > from) spans.push([from, at]);
    while (isBlank[at + 1]) at++;
    from = at + 1;
  }
  if (from < width) spans.push([from, width]);
  return spans;
}
