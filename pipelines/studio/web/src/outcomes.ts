/** The words and numbers of pages that compare runs. */

import type { MatrixCell } from "./types";

/** The attempts of one side at a task. */
type Attempts = Pick<MatrixCell, "attempts" | "results" | "passed">;

export const percent = (rate: number | null) => (rate === null ? "–" : `${(rate * 100).toFixed(1)} %`);

/** A p-value. */
export const chance = (p: number) => (p < 0.0001 ? p.toExponential(1) : p.toFixed(4));

export const outcome = (side: Attempts) =>
  side.results === 0 ? "no result"
    : side.attempts > 1 ? `${side.passed} of ${side.results} passed`
    : side.passed ? "passed" : "failed";

/** The class of an outcome. */
export const color = (side: Attempts) =>
  side.results === 0 ? "quiet" : side.passed === side.results ? "accepted" : "rejected";

/** A task as tables name it; one of a run is named by the beginning of its digest. */
export const shortTask = (task: string) => (task.length === 64 ? task.slice(0, 12) : task);
