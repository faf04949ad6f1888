/** Asks the server. `types.ts` has the types of its answers. */

import type { Comparison, Facet, FileView, Page, PairView, Review, ReviewSummary, SourceInfo, View } from "./types";

/** Asks the server; throws its message if it refuses. */
async function ask(path: string, init?: RequestInit): Promise<Response> {
  let response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new Error("The studio does not answer. Is `pybench studio` still running?");
  }
  if (response.ok) return response;
  const text = await response.text();
  let message = text;
  try {
    message = JSON.parse(text).message ?? text;
  } catch {
    // The text says why.
  }
  throw new Error(message || response.statusText);
}

const json = async <T>(path: string, init?: RequestInit): Promise<T> => (await ask(path, init)).json();

const of = (name: string) => `/api/data/${encodeURIComponent(name)}`;

export const sources = () => json<SourceInfo[]>("/api/data");
export const facets = (name: string) => json<Facet[]>(`${of(name)}/facets`);
export const page = (name: string, query: URLSearchParams) => json<Page>(`${of(name)}?${query}`);
export const view = (name: string, number: number) => json<View>(`${of(name)}/${number}`);
export const raw = async (name: string, number: number) =>
  JSON.stringify(await json<unknown>(`${of(name)}/${number}/raw`), null, 1);
export const fileAddress = (name: string, file: FileView) =>
  `${of(name)}/files/${file.id}?name=${encodeURIComponent(file.name)}`;
export const head = async (name: string, file: FileView, bytes: number) =>
  (await ask(`${fileAddress(name, file)}&head=${bytes}`)).text();
export const comparison = (query: URLSearchParams) => json<Comparison>(`/api/compare?${query}`);
export const pair = (query: URLSearchParams) => json<PairView>(`/api/compare/pair?${query}`);
export const reviews = (name: string) => json<ReviewSummary>(`${of(name)}/reviews`);
/** Saves a decision; when the promise is fulfilled, it is on the disk. */
export const saveReview = (name: string, number: number, review: Review) =>
  json<Review>(`${of(name)}/${number}/review`, {
    method: "PUT",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(review),
  });
