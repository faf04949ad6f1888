/** Asks the server. `types.ts` has the types of its answers. */

import type {
  AgentList, ChatList, ChatRequest, ChatView, Comparison, ContinueRequest, DatasetStatistics, Facet, FilePage, FileView, ForkRequest, ForkView, Matrix, Page, PairView, RecipeView, Results,
  RetriedUnits, Review, ReviewSummary, SaveRequest, SourceInfo, TaskQueue, TaskReview, TrainingRun, View, WrittenTurn,
} from "./types";

/** The answer needs trajectories that are not indexed yet. */
class NotIndexed extends Error {}

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
  if (response.status === 503) throw new NotIndexed(message);
  throw new Error(message || response.statusText);
}

const json = async <T>(path: string, init?: RequestInit): Promise<T> => (await ask(path, init)).json();

const of = (name: string) => `/api/data/${encodeURIComponent(name)}`;

export const sources = () => json<SourceInfo[]>("/api/data");
/** Where the server sends the list of runs, or the status of one, whenever it has changed. */
export const listEvents = "/api/events";
export const statusEvents = (name: string) => `${of(name)}/events`;
/** The recipe of a run, and that of another one beside it. */
export const recipe = (name: string, beside: string) =>
  json<RecipeView>(`${of(name)}/recipe${beside ? `?beside=${encodeURIComponent(beside)}` : ""}`);
export const results = () => json<Results>("/api/results");
export const trainingRuns = () => json<TrainingRun[]>("/api/results/training");
export const statistics = (name: string) => json<DatasetStatistics>(`${of(name)}/statistics`);
export const facets = (name: string) => json<Facet[]>(`${of(name)}/facets`);
export const page = (name: string, query: URLSearchParams) => json<Page>(`${of(name)}?${query}`);
/** A trajectory; of a long one the page that has this turn. */
export const view = (name: string, number: number, turn = 1) => json<View>(`${of(name)}/${number}?turn=${turn}`);
export const rawAddress = (name: string, number: number) => `${of(name)}/${number}/raw`;
export const raw = async (name: string, number: number) =>
  JSON.stringify(await json<unknown>(`${of(name)}/${number}/raw`), null, 1);
export const fileAddress = (name: string, file: FileView) =>
  `${of(name)}/files/${file.id}?name=${encodeURIComponent(file.name)}`;
/** A part of a file; `from` is a row, a page or a byte. */
export const filePage = (name: string, file: FileView, from: number, sheet: number) =>
  json<FilePage>(`${of(name)}/files/${file.id}/page?${new URLSearchParams({ name: file.name, from: String(from), sheet: String(sheet) })}`);
/** Where an HTML file is for a frame that may do nothing. */
export const frameAddress = (name: string, file: FileView) => `${of(name)}/files/${file.id}/frame`;

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

export const comparison = (query: URLSearchParams) => json<Comparison>(`/api/compare?${query}`);
export const matrix = (query: URLSearchParams) => json<Matrix>(`/api/compare/matrix?${query}`);
export const pair = (query: URLSearchParams) => json<PairView>(`/api/compare/pair?${query}`);
export const reviews = (name: string) => json<ReviewSummary>(`${of(name)}/reviews`);

const sending = (method: string, body: unknown): RequestInit => ({
  method,
  headers: { "Content-Type": "application/json" },
  body: JSON.stringify(body),
});

/** Begins to edit a turn: those before it are replayed. */
export const beginFork = (name: string, number: number, request: ForkRequest) =>
  json<ForkView>(`${of(name)}/${number}/forks`, sending("POST", request));
export const fork = (id: string) => json<ForkView>(`/api/forks/${id}`);
/** Sends turns; `after` is the number of turns that the person has seen. */
export const sendTurns = (id: string, after: number, turns: WrittenTurn[]) =>
  json<ForkView>(`/api/forks/${id}/turns`, sending("POST", { after, turns }));
/** The agents that can continue an edit. */
export const agents = () => json<AgentList>("/api/agents");
/** Lets a model write the next turns of an edit. */
export const continueFork = (id: string, request: ContinueRequest) =>
  json<ForkView>(`/api/forks/${id}/continue`, sending("POST", request));
export const stopFork = (id: string) => json<ForkView>(`/api/forks/${id}/stop`, sending("POST", {}));
/** Saves an edit; when the promise is fulfilled, it is on the disk. */
export const saveFork = (id: string, what: SaveRequest) =>
  json<ForkView>(`/api/forks/${id}/save`, sending("POST", what));
/** Ends the session of an edit, also while the page is left. */
export const leaveFork = (id: string) =>
  void fetch(`/api/forks/${id}`, { ...sending("DELETE", {}), keepalive: true }).catch(() => {});
/** An edited trajectory. */
export const edited = (name: string, number: number, id: string) =>
  json<View>(`${of(name)}/${number}/edits/${encodeURIComponent(id)}`);
export const preferencesAddress = (name: string) => `${of(name)}/preferences`;

export const chatList = () => json<ChatList>("/api/chats");
export const beginChat = (request: ChatRequest) => json<ChatView>("/api/chats", sending("POST", request));
const ofChat = (id: string) => `/api/chats/${encodeURIComponent(id)}`;
/** The state of a conversation that is open. The answer waits for a version above `after`. */
export const chat = (id: string, after: number, generation: number, from: number) =>
  json<ChatView>(`${ofChat(id)}?after=${after}&generation=${generation}&from=${from}`);
/** Sends a message, or replaces the message with a number. */
export const sendMessage = (id: string, text: string, replaces: number | null) =>
  json<unknown>(`${ofChat(id)}/messages`, sending("POST", { text, replaces }));
export const orderChat = (id: string, order: "retry" | "continue" | "stop" | "grade" | "dataset") =>
  json<unknown>(`${ofChat(id)}/${order}`, sending("POST", {}));
export const putChatFile = (id: string, name: string, base64: string) =>
  json<unknown>(`${ofChat(id)}/files`, sending("PUT", { name, base64 }));
/** The `id` of such a file is the version of the session, so that a changed file has another address. */
export const chatFiles = (id: string): FileSource => {
  const query = (file: FileView) => new URLSearchParams({ path: file.name, version: file.id });
  return {
    address: (file) => `${ofChat(id)}/file?${query(file)}`,
    page: (file, from, sheet) =>
      json<FilePage>(`${ofChat(id)}/file/page?${new URLSearchParams({ name: file.name, from: String(from), sheet: String(sheet) })}`),
    frame: (file) => `${ofChat(id)}/file/frame?${query(file)}`,
  };
};
export const exportAddress = (id: string, form: "notebook" | "json" | "html") => `${ofChat(id)}/export/${form}`;
/** Ends the session of a conversation, also while the page is left. */
export const leaveChat = (id: string) =>
  void fetch(ofChat(id), { ...sending("DELETE", {}), keepalive: true }).catch(() => {});

/** Makes the failed units of a stage and kind pending again. */
export const retryUnits = (name: string, stage: string, kind: string) =>
  json<RetriedUnits[]>(`${of(name)}/retry`, sending("POST", { stage, kind }));
/** The tasks of a run, before they are solved. */
export const tasks = (name: string, query: URLSearchParams) => json<TaskQueue>(`${of(name)}/tasks?${query}`);
/** Saves a decision on a task; when the promise is fulfilled, it is on the disk. */
export const saveTaskReview = (name: string, id: string, review: TaskReview) =>
  json<TaskReview>(`${of(name)}/tasks/${id}/review`, sending("PUT", review));

/** Saves a decision; when the promise is fulfilled, it is on the disk. */
export const saveReview = (name: string, number: number, review: Review) =>
  json<Review>(`${of(name)}/${number}/review`, sending("PUT", review));
