/** The first parts of files, asked for before their previews are on the page, so that these have their size at once. */

import type { FileSource } from "./api";
import type { FilePage, FileView } from "./types";

/** So many files of a list are open at first; each asks the server. */
export const OPEN = 6;
/** How long a page waits for them, ms. */
const WAIT = 200;

/** What was asked for, by id and name. */
let asked = new Map<string, Promise<FilePage>>();
const key = (file: FileView) => `${file.id} ${file.name}`;

/** Asks for the first parts of the files that will be open, and waits a moment for them. */
export async function prepare(source: FileSource, files: FileView[]) {
  const parts = new Map<string, Promise<FilePage>>();
  asked = parts;
  const open = files.slice(0, OPEN).filter((file) => file.preview !== "image" && !file.missing);
  for (const file of open) {
    const part = source.page(file, 0, 0);
    parts.set(key(file), part);
    // The preview says why, and asks again when it is opened again.
    part.catch(() => parts.delete(key(file)));
  }
  await Promise.race([Promise.allSettled(parts.values()), new Promise((done) => setTimeout(done, WAIT))]);
}

/** A part of a file. */
export const part = (source: FileSource, file: FileView, from: number, sheet: number): Promise<FilePage> =>
  (from || sheet ? undefined : asked.get(key(file))) ?? source.page(file, from, sheet);
