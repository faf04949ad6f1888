/** Asks the server. `types.ts` has its routes and the types of its answers, generated from the server's OpenAPI document. */

import type {
  ChatRequest, ContinueRequest, FilePage, FileView, ForkRequest, Review, Routes, SaveRequest, TaskReview, WrittenTurn,
} from "./types";

type Route = keyof Routes;
/** Values for the names in braces of a route. */
type Parts<R extends string> = R extends `${string}{${infer Name}}${infer Rest}` ? Record<Name, string | number> & Parts<Rest> : unknown;
type Query<R extends Route> = Routes[R]["query"] | URLSearchParams;

/** The answer needs trajectories that are not indexed yet. */
class NotIndexed extends Error {}

/** There was no answer; the next request may have one. */
export class NoAnswer extends Error {}

/** Time until a page asks again for what is being indexed, ms. */
export const INDEXING = 2000;

/** Asks again and again while what is asked for is being indexed. `waits` is told why, and returns whether to go on. */
export async function whenIndexed<T>(question: () => Promise<T>, waits: (message: string) => boolean): Promise<T> {
  for (;;) {
    try {
      return await question();
    } catch (error) {
      if (!(error instanceof NotIndexed) || !waits(error.message)) throw error;
    }
    await new Promise((resume) => setTimeout(resume, INDEXING));
  }
}

const LOST = "The studio does not answer. Is `pybench studio` still running?";

/** What is left of an answer whose connection may end. */
const body = <T>(rest: Promise<T>): Promise<T> =>
  rest.catch((error) => {
    throw error instanceof SyntaxError ? error : new NoAnswer(LOST);
  });

/** Asks the server; throws its message if it refuses. */
async function ask(path: string, init?: RequestInit): Promise<Response> {
  let response;
  try {
    response = await fetch(path, init);
  } catch {
    throw new NoAnswer(LOST);
  }
  if (response.ok) return response;
  const text = await body(response.text());
  let message = text;
  try {
    message = JSON.parse(text).message ?? text;
  } catch {
    // The text says why.
  }
  if (response.status === 503) throw new NotIndexed(message);
  throw new Error(message || response.statusText);
}

/** The address of a route. */
function at<R extends Route>(route: R, parts: Parts<R>, query?: Query<R>): string {
  const values = parts as Record<string, string | number>;
  const path = route.split(" ")[1]?.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(String(values[name])));
  const fields = Object.entries(query ?? {}).map(([name, value]) => [name, String(value)]);
  const asked = query instanceof URLSearchParams ? query : new URLSearchParams(fields);
  return asked.size ? `${path}?${asked}` : `${path}`;
}

const sending = (method: string, body: unknown): RequestInit => ({
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

/** What a route answers. */
async function call<R extends Route>(
  route: R, parts: Parts<R>, { query, body: sent }: { query?: Query<R>; body?: Routes[R]["body"] } = {},
): Promise<Routes[R]["answer"]> {
  const method = route.split(" ")[0] ?? "GET";
  const response = await ask(at(route, parts, query), method === "GET" ? undefined : sending(method, sent ?? {}));
  return body(response.json());
}

/** Asks for the end of a session, also while the page is left. */
const leave = (address: string) => void fetch(address, { ...sending("DELETE", {}), keepalive: true }).catch(() => {});

export const sources = () => call("GET /api/data", {});
/** Where the server sends the list of runs, or the status of one, whenever it has changed. */
export const listEvents = at("GET /api/events", {});
export const statusEvents = (name: string) => at("GET /api/data/{name}/events", { name });
/** The recipe of a run, and that of another one beside it. */
export const recipe = (name: string, beside: string) =>
  call("GET /api/data/{name}/recipe", { name }, { query: beside ? { beside } : {} });
export const results = () => call("GET /api/results", {});
/** Where the server sends the learning curves whenever they have grown. */
export const trainingEvents = at("GET /api/results/training/events", {});
export const statistics = (name: string) => call("GET /api/data/{name}/statistics", { name });
/** Where the server sends the version of the list whenever it changes. */
export const changeEvents = (name: string) => at("GET /api/data/{name}/changes", { name });
export const facets = (name: string) => call("GET /api/data/{name}/facets", { name });
export const page = (name: string, query: URLSearchParams) => call("GET /api/data/{name}", { name }, { query });
/** A trajectory; of a long one the page that has this turn. */
export const view = (name: string, number: number, turn = 1) =>
  call("GET /api/data/{name}/{number}", { name, number }, { query: { turn } });
export const rawAddress = (name: string, number: number) => at("GET /api/data/{name}/{number}/raw", { name, number });
export const raw = async (name: string, number: number) =>
  JSON.stringify(await call("GET /api/data/{name}/{number}/raw", { name, number }), null, 1);
export const fileAddress = (name: string, file: FileView) =>
  at("GET /api/data/{name}/files/{id}", { name, id: file.id }, { name: file.name });
/** A part of a file; `from` is a row, a page or a byte. */
export const filePage = (name: string, file: FileView, from: number, sheet: number) =>
  call("GET /api/data/{name}/files/{id}/page", { name, id: file.id }, { query: { name: file.name, from, sheet } });
/** Where an HTML file is for a frame that may do nothing. */
export const frameAddress = (name: string, file: FileView) => at("GET /api/data/{name}/files/{id}/frame", { name, id: file.id });

/** The files of a run, or of the session of a conversation. */
export interface FileSource {
  address: (file: FileView) => string;
  page: (file: FileView, from: number, sheet: number) => Promise<FilePage>;
  frame: (file: FileView) => string;
}
export const filesOf = (name: string): FileSource => ({
  address: (file) => fileAddress(name, file),
  page: (file, from, sheet) => filePage(name, file, from, sheet),
  frame: (file) => frameAddress(name, file),
});

export const comparison = (query: URLSearchParams) => call("GET /api/compare", {}, { query });
export const matrix = (query: URLSearchParams) => call("GET /api/compare/matrix", {}, { query });
export const pair = (query: URLSearchParams) => call("GET /api/compare/pair", {}, { query });
export const reviews = (name: string) => call("GET /api/data/{name}/reviews", { name });
/** Where the server sends the same whenever somebody has decided. */
export const reviewEvents = (name: string) => at("GET /api/data/{name}/reviews/events", { name });

/** Begins to edit a turn: those before it are replayed. */
export const beginFork = (name: string, number: number, body: ForkRequest) =>
  call("POST /api/data/{name}/{number}/forks", { name, number }, { body });
export const fork = (id: string) => call("GET /api/forks/{id}", { id });
/** Sends turns; `after` is the number of turns that the person has seen. */
export const sendTurns = (id: string, after: number, turns: WrittenTurn[]) =>
  call("POST /api/forks/{id}/turns", { id }, { body: { after, turns } });
/** Takes the last turns of an edit back; `keep` is the number of turns that stay. */
export const backFork = (id: string, keep: number) => call("POST /api/forks/{id}/back", { id }, { body: { keep } });
/** The agents that can continue an edit. */
export const agents = () => call("GET /api/agents", {});
/** Lets a model write the next turns of an edit. */
export const continueFork = (id: string, body: ContinueRequest) => call("POST /api/forks/{id}/continue", { id }, { body });
export const stopFork = (id: string) => call("POST /api/forks/{id}/stop", { id });
/** Saves an edit; when the promise is fulfilled, it is on the disk. */
export const saveFork = (id: string, body: SaveRequest) => call("POST /api/forks/{id}/save", { id }, { body });
/** Ends the session of an edit. */
export const leaveFork = (id: string) => leave(at("DELETE /api/forks/{id}", { id }));
/** An edited trajectory. */
export const edited = (name: string, number: number, id: string) =>
  call("GET /api/data/{name}/{number}/edits/{id}", { name, number, id });
export const preferencesAddress = (name: string) => at("GET /api/data/{name}/preferences", { name });

export const chatList = () => call("GET /api/chats", {});
export const beginChat = (body: ChatRequest) => call("POST /api/chats", {}, { body });
/** The state of a conversation that is open. The answer waits for a version above `after`. */
export const chat = (id: string, after: number, generation: number, from: number) =>
  call("GET /api/chats/{id}", { id }, { query: { after, generation, from } });
/** Sends a message, or replaces the message with a number. */
export const sendMessage = (id: string, text: string, replaces: number | null) =>
  call("POST /api/chats/{id}/messages", { id }, { body: { text, replaces } });
export const orderChat = (id: string, order: "retry" | "continue" | "stop" | "grade" | "dataset") =>
  call(`POST /api/chats/{id}/${order}`, { id });
export const putChatFile = (id: string, name: string, base64: string) =>
  call("PUT /api/chats/{id}/files", { id }, { body: { name, base64 } });
/** The `id` of such a file is the version of the session, so that a changed file has another address. */
export const chatFiles = (id: string): FileSource => {
  const query = (file: FileView) => new URLSearchParams({ path: file.name, version: file.id });
  return {
    address: (file) => at("GET /api/chats/{id}/file", { id }, query(file)),
    page: (file, from, sheet) => call("GET /api/chats/{id}/file/page", { id }, { query: { name: file.name, from, sheet } }),
    frame: (file) => at("GET /api/chats/{id}/file/frame", { id }, query(file)),
  };
};
export const exportAddress = (id: string, form: "notebook" | "json" | "html") =>
  at("GET /api/chats/{id}/export/{form}", { id, form });
/** Ends the session of a conversation. */
export const leaveChat = (id: string) => leave(at("DELETE /api/chats/{id}", { id }));

/** Makes the failed units of a stage and kind pending again. */
export const retryUnits = (name: string, stage: string, kind: string) =>
  call("POST /api/data/{name}/retry", { name }, { body: { stage, kind } });
/** The tasks of a run, before they are solved. */
export const tasks = (name: string, query: URLSearchParams) => call("GET /api/data/{name}/tasks", { name }, { query });
/** Saves a decision on a task; when the promise is fulfilled, it is on the disk. */
export const saveTaskReview = (name: string, id: string, body: TaskReview) =>
  call("PUT /api/data/{name}/tasks/{id}/review", { name, id }, { body });

/** Saves a decision; when the promise is fulfilled, it is on the disk. */
export const saveReview = (name: string, number: number, body: Review) =>
  call("PUT /api/data/{name}/{number}/review", { name, number }, { body });
