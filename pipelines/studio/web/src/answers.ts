/** Answers of the server that a page waits for. Those to an earlier question, or for a page that was left, are dropped. */

import { onDestroy } from "svelte";
import { whenIndexed } from "./api";

/** Drops an answer that has not come yet. */
type Drop = () => void;

/** Hands over an answer, or why there is none, until what it returns is called; effects return that. */
export function take<T>(asked: Promise<T>, got: (answer: T) => void, failed: (error: Error) => void = () => {}): Drop {
  let current = true;
  asked.then(
    (answer) => {
      if (current) got(answer);
    },
    (error: Error) => {
      if (current) failed(error);
    },
  );
  return () => {
    current = false;
  };
}

/** As `take`, for what may have to be indexed first; `waits` is told why. */
export function takeIndexed<T>(
  question: () => Promise<T>, got: (answer: T) => void, failed: (error: Error) => void, waits: (message: string) => void,
): Drop {
  let current = true;
  const wait = (message: string) => {
    if (current) waits(message);
    return current;
  };
  const drop = take(whenIndexed(question, wait), got, failed);
  return () => {
    current = false;
    drop();
  };
}

/** As `take`, for a component that is being made; each question drops the answer to the one before. */
export function latest(): typeof take {
  let drop: Drop = () => {};
  onDestroy(() => drop());
  return (asked, got, failed) => {
    drop();
    drop = take(asked, got, failed);
    return drop;
  };
}
