/** The highlighter of code, which is loaded when the first code is shown. */

export interface Piece {
  /** Its class; empty for text without a color. */
  kind: string;
  text: string;
}

/** Longer code is shown without colors. */
const MAX_LENGTH = 50_000;

let highlight = $state.raw<(code: string) => Piece[]>();
let isLoading = false;

/** Loads it. Code is shown without colors until it is there. */
export function load() {
  if (isLoading) return;
  isLoading = true;
  import("./python").then(
    (module) => (highlight = module.highlight),
    () => (isLoading = false),
  );
}

export const pieces = (code: string): Piece[] =>
  highlight && code.length <= MAX_LENGTH ? highlight(code) : [{ kind: "", text: code }];
