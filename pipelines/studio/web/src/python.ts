/** Highlights Python by its grammar. It is loaded when the first code is shown: see `highlighter.svelte.ts`. */

import { highlightCode, tagHighlighter, tags } from "@lezer/highlight";
import { parser } from "@lezer/python";
import type { Piece } from "./highlighter.svelte";

const CLASSES = tagHighlighter([
  { tag: tags.comment, class: "comment" },
  { tag: tags.string, class: "string" },
  { tag: tags.number, class: "number" },
  { tag: [tags.keyword, tags.bool, tags.operatorKeyword], class: "keyword" },
]);

/** The text in pieces, with the class of each. */
export function highlight(code: string): Piece[] {
  const pieces: Piece[] = [];
  highlightCode(
    code, parser.parse(code), CLASSES,
    (text, kind) => pieces.push({ kind, text }),
    () => pieces.push({ kind: "", text: "\n" }),
  );
  return pieces;
}
