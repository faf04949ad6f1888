/** The answers of the server; see `pipelines/studio/src/api.rs`. */

export interface Row {
  number: number;
  id: string;
  category: string;
  keyword: string;
  origin: string;
  language: string;
  teacher: string;
  format: string;
  verdict: string;
  rejected_by: string;
  end: string;
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

export interface SourceInfo {
  name: string;
  total: number;
  facets: Facet[];
}

export interface Message {
  role: "system" | "user" | "assistant" | "tool";
  content: string;
  /** 0 for a reply that is context only. */
  weight?: number;
}

export interface Output {
  output: "stream" | "result" | "display" | "chart";
  name?: string;
  text?: string;
  data?: Record<string, string>;
  path?: string | null;
}

export interface Observation {
  outputs: Output[];
  error: { ename: string; evalue: string; traceback: string } | null;
  stopped: string | null;
}

export interface Turn {
  reply: string;
  cell: string | null;
  observation: Observation | null;
  more?: { cell: string | null; observation: Observation }[];
  usage: { prompt_tokens: number; completion_tokens: number };
}

export interface OutputFile {
  path: string;
  id: string;
  size: number;
}

export interface Finding {
  filter: string;
  subject: string;
  outcome: "pass" | "fail" | "unproven";
  detail: string;
  mismatch?: { place: string; expected: string; found: string };
}

export interface View {
  messages: Message[];
  trajectory?: { id: string; teacher: string; turns: Turn[]; outputs: OutputFile[]; end: { end: string } };
  task?: { query: string; keyword: string; files: { name: string; id: string; size: number }[] } | null;
  verdict?: { accepted: boolean; findings: Finding[] } | null;
  location?: string;
}

/** Asks the server; throws its message where it refuses. */
async function ask<T>(path: string): Promise<T> {
  const response = await fetch(path);
  const body = await response.json();
  if (!response.ok) throw new Error(body.message ?? response.statusText);
  return body;
}

export const source = () => ask<SourceInfo>("/api/source");
export const rows = (query: URLSearchParams) => ask<Page>(`/api/rows?${query}`);
export const record = (number: number) => ask<View>(`/api/rows/${number}`);
export const file = (id: string, name: string) => `/api/files/${id}?name=${encodeURIComponent(name)}`;
