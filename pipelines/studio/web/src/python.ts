/** Highlights Python: pieces of the text with the class of each. */

const KEYWORDS =
  "and as assert async await break class continue def del elif else except finally for from global if import in is lambda " +
  "nonlocal not or pass raise return try while with yield None True False";
const PIECES = new RegExp(
  [
    String.raw`(?<comment>#[^\n]*)`,
    String.raw`(?<string>(?:\b[rbfuRBFU]{1,2})?(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))`,
    String.raw`(?<number>\b\d[\w.]*)`,
    String.raw`(?<keyword>\b(?:${KEYWORDS.split(" ").join("|")})\b)`,
  ].join("|"),
  "g",
);
/** Longer code is shown without colors. */
const MOST = 50_000;

export function highlight(code: string): { kind: string; text: string }[] {
  if (code.length > MOST) return [{ kind: "", text: code }];
  const pieces = [];
  let at = 0;
  for (const found of code.matchAll(PIECES)) {
    const kind = Object.entries(found.groups ?? {}).find(([, text]) => text !== undefined)?.[0] ?? "";
    if (found.index > at) pieces.push({ kind: "", text: code.slice(at, found.index) });
    pieces.push({ kind, text: found[0] });
    at = found.index + found[0].length;
  }
  pieces.push({ kind: "", text: code.slice(at) });
  return pieces;
}
