/** The answers of the server; `pipelines/studio/src` defines them: runs.rs, row.rs, index.rs, view.rs. */

export interface SourceInfo {
  name: string;
  state: "running" | "failed" | "unfinished" | "finished" | "dataset" | "unreadable";
  files: number | null;
  tasks: number | null;
  trajectories: number | null;
  accepted: number | null;
  rows: number | null;
  failed: number | null;
  calls: number | null;
  tokens: number | null;
  micro_usd: number | null;
  status: string;
}

export interface Row {
  number: number;
  id: string;
  category: string;
  keyword: string;
  origin: string;
  kinds: string;
  language: string;
  teacher: string;
  format: string;
  verdict: string;
  rejected_by: string;
  end: string;
  error: string;
  turns: number;
  tokens: number;
  query: string;
}

export interface Page {
  total: number;
  rows: Row[];
}

export interface Facet {
  column: string;
  values: [string, number][];
}

export interface FileView {
  name: string;
  id: string;
  size: number | null;
  preview: "image" | "audio" | "text" | "none";
  missing: boolean;
}

export type OutputView =
  | { type: "text" | "stderr" | "error" | "note"; text: string }
  | { type: "image"; mime: string; base64: string };

export interface CellView {
  code: string | null;
  outputs: OutputView[];
}

export interface TurnView {
  asked: string[];
  text: string;
  cells: CellView[];
  prompt_tokens: number | null;
  completion_tokens: number | null;
  trained: boolean;
}

export interface Finding {
  filter: string;
  subject: string;
  outcome: "pass" | "fail" | "unproven";
  detail: string;
  mismatch?: { place: string; expected: string; found: string };
}

export interface View {
  row: Row;
  location: string | null;
  system: string;
  query: string;
  files: FileView[];
  reference: string;
  turns: TurnView[];
  outputs: FileView[];
  verdict: {
    trajectory: string;
    checker: string;
    accepted: boolean;
    findings: Finding[];
    opinion?: { judge: string; passed: boolean | null; reason: string };
  } | null;
}

/** Asks the server; throws its message if it refuses. */
async function ask(path: string): Promise<Response> {
  let response;
  try {
    response = await fetch(path);
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

const json = async <T>(path: string): Promise<T> => (await ask(path)).json();

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
