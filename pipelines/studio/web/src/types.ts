// The answers of the server, generated from the types in pipelines/studio/src. After a change there, run:
//   UPDATE_TYPES=1 cargo test -p pybench-studio --lib types

export interface AgentList {
  agents: string[];
  problem: string;
  endpoints: ModelEndpoint[] | null;
}

export type AuthorKind = "human" | "recorded" | "model";

export interface CellView {
  code: string | null;
  outputs: OutputView[];
}

export interface ChatFile {
  path: string;
  size: number;
  preview: Preview;
}

export interface ChatItem {
  kind: ChatItemKind;
  number: number;
  text: string;
  turn: TurnView | null;
}

export type ChatItemKind = "file" | "message" | "reply" | "stopped";

export interface ChatList {
  agents: string[];
  problem: string;
  conversations: SavedChat[];
  endpoints: ModelEndpoint[] | null;
}

export interface ChatRequest {
  agent: string | null;
  conversation: string | null;
  about: ChatTopic | null;
  format: string | null;
  endpoint: ModelEndpoint | null;
  file: string | null;
}

export interface ChatTopic {
  name: string;
  number: number;
}

export interface ChatView {
  id: string;
  agent: string;
  model: string;
  format: string;
  version: number;
  generation: number;
  from: number;
  items: ChatItem[];
  working: boolean;
  reply: string;
  running: CellView | null;
  unfinished: boolean;
  problem: string;
  notes: string[];
  files: ChatFile[];
  limits: string[];
  tokens: number;
  micro_usd: number | null;
  gradable: boolean;
  verdict: Verdict | null;
}

export interface CheckView {
  score: string;
  name: string;
  passed: boolean;
  expected: string;
  found: string;
}

export interface Comparison {
  measure: Measure;
  measures: Measure[];
  a: SideSummary;
  b: SideSummary;
  shared: number;
  compared: number;
  a_better: number;
  b_better: number;
  p: number;
  total: number;
  tasks: TaskPair[];
}

export interface ContinuationView {
  agent: string;
  model: string;
  working: boolean;
  reply: string;
  turns: number;
  tokens: number;
  micro_usd: number | null;
  note: string;
}

export interface ContinueRequest {
  after: number;
  agent: string | null;
  endpoint: ModelEndpoint | null;
  file: string | null;
  turns: number;
  tokens: number;
  usd: number | null;
}

export interface Curve {
  name: string;
  points: [number, number][];
}

export interface DatasetStatistics {
  conversations: number;
  tokens_each: number;
  tokenizer: string;
  counts: Distribution[];
  diversity: Diversity[];
}

export type Decision = "accept" | "reject";

export type Digest = string;

export interface Distribution {
  title: string;
  bars: [string, number][];
}

export interface Diversity {
  group: string;
  rows: number;
  graphs: number;
  queries: number;
  programs: number;
  near_duplicates: number;
}

export interface EditInfo {
  id: string;
  trajectory: string;
  turn: number;
  editor: string;
  saved_at: number;
  repair: boolean;
  pair: boolean;
  models: string[];
}

export type EntryKind = "measured" | "baseline" | "published";

export interface EvaluationPoint {
  step: number;
  agent: string;
  suite: string;
  run: string;
  passed: RateView;
}

export interface EvaluationView {
  agent: string;
  suite: string;
  task: string;
  seed: number;
  notes: string[];
  scores: ScoreView[];
  checks: CheckView[];
  judge: JudgeView | null;
  seconds: number;
  micro_usd: number | null;
}

export interface Facet {
  column: string;
  values: [string, number][];
}

export interface FailureCount {
  what: string;
  count: number;
  retry: Retry;
  examples: string[];
}

export interface FilePage {
  kind: FilePageKind;
  size: number;
  from: number;
  next: number | null;
  total: number | null;
  columns: string[];
  rows: ((string | null)[])[];
  sheets: string[];
  text: string;
  sound: SoundView | null;
  note: string;
}

export type FilePageKind = "table" | "text" | "html" | "document" | "sound" | "bytes";

export interface FileView {
  name: string;
  id: string;
  size: number | null;
  preview: Preview;
  missing: boolean;
}

export interface Finding {
  filter: string;
  subject: string;
  outcome: Outcome;
  detail: string;
  mismatch?: Mismatch | null;
}

export interface ForkRequest {
  trajectory: string;
  turn: number;
  editor: string;
  turns: WrittenTurn[];
  resume: boolean;
}

export interface ForkView {
  id: string;
  name: string;
  trajectory: string;
  turn: number;
  editor: string;
  phase: Phase;
  problem: string;
  turns: TurnView[];
  written: WrittenTurn[];
  authors: TurnAuthor[];
  copied: number[];
  continuation: ContinuationView | null;
  recorded: WrittenTurn[];
  outputs: FileView[];
  verdict: Verdict | null;
  pairable: boolean;
  unsaved: string;
  saved_in: string | null;
  saved: EditInfo | null;
}

export interface IndexProgress {
  rows: number;
  problem: string;
}

export interface JudgeView {
  judge: string;
  passed: boolean | null;
  reason: string;
}

export interface Leaderboard {
  suite: string;
  score: string;
  categories: string[];
  entries: LeaderboardEntry[];
}

export interface LeaderboardEntry {
  agent: string;
  about: string;
  kind: EntryKind;
  run: string;
  basis: string;
  overall: RateView;
  categories: (RateView | null)[];
  turns: number | null;
  missing: number;
  bounds: [number, number] | null;
  note: string;
}

export interface ListState {
  version: string;
  newer: IndexProgress | null;
}

export interface Matrix {
  measure: Measure;
  measures: Measure[];
  sides: SideSummary[];
  compared: number;
  pairs: PairTest[];
  total: number;
  tasks: MatrixTask[];
}

export interface MatrixCell {
  number: number;
  attempts: number;
  results: number;
  passed: number;
}

export interface MatrixTask {
  task: string;
  category: string;
  query: string;
  differs: boolean;
  cells: (MatrixCell | null)[];
}

export type Measure = "verdict" | "strict" | "fixed" | "upstream";

export interface Mismatch {
  place: string;
  expected: string;
  found: string;
}

export interface ModelEndpoint {
  address: string;
  model: string;
  key_env: string | null;
}

export interface Opinion {
  judge: string;
  passed: boolean | null;
  reason: string;
}

export type Outcome = "pass" | "fail" | "unproven";

export type OutputView = { type: "text"; text: string } | { type: "stderr"; text: string } | { type: "error"; text: string } | { type: "image"; mime: string; base64: string } | { type: "note"; text: string };

export interface Page {
  total: number;
  rows: Row[];
  edited: number[];
  indexing: IndexProgress | null;
  outdated: string;
  state: ListState;
}

export interface PairAgreement {
  a: string;
  b: string;
  items: number;
  agree: number;
  kappa: number | null;
  interval: [number, number] | null;
}

export interface PairTest {
  a: number;
  b: number;
  compared: number;
  a_better: number;
  b_better: number;
  p: number;
  p_holm: number;
}

export interface PairView {
  a: View;
  b: View;
  turns: TurnDifference[];
  first_turn: number;
  turn_count: number;
  first: number | null;
  first_code: number | null;
}

export type Phase = "replaying" | "waiting" | "running" | "checking" | "checked" | "failed";

export type Preview = "image" | "audio" | "text" | "none";

export interface RateView {
  rate: number;
  interval: [number, number] | null;
  tasks: number | null;
}

export interface RecipeKey {
  key: string;
  value: string | null;
  other: string | null;
  differs: boolean;
}

export interface RecipeView {
  name: string;
  beside: string;
  keys: RecipeKey[];
}

export interface RejectionCount {
  what: string;
  count: number;
  examples: string[];
}

export interface Results {
  leaderboards: Leaderboard[];
  problems: string[];
}

export interface RetriedUnits {
  stage: string;
  units: number;
  offered: boolean;
}

export type Retry = "pending" | "command" | "flag";

export interface Review {
  trajectory: string;
  reviewer: string;
  decision: Decision | null;
  label: string;
  comment: string;
}

export interface ReviewSummary {
  reviewers: ReviewerCounts[];
  agreements: PairAgreement[];
  labels: [string, number][];
}

export interface ReviewerCounts {
  reviewer: string;
  accepted: number;
  rejected: number;
  undecided: number;
}

export interface Row {
  number: number;
  id: string;
  task: string;
  category: string;
  keyword: string;
  origin: string;
  kinds: string[];
  language: string;
  teacher: string;
  format: string;
  verdict: string;
  rejected_by: string;
  failed_checks: string[];
  upstream: string;
  fixed: string;
  strict: string;
  end: string;
  error: string;
  turns: number;
  tokens: number;
  micro_usd: number | null;
  query: string;
}

export interface RunStatus {
  info: SourceInfo;
  stages: StageView[];
  in_flight: string;
  workers: number;
  expected_micro_usd: number | null;
  budget_micro_usd: number | null;
  failures: FailureCount[];
  rejections: RejectionCount[];
  command: string;
}

export interface SaveRequest {
  repair: boolean;
  pair: boolean;
}

export interface SavedChat {
  id: string;
  title: string;
  changed: number;
}

export interface ScoreView {
  score: string;
  passed: boolean;
}

export interface SideSummary {
  name: string;
  teacher: string;
  attempts: number;
  tasks: number;
  rate: number | null;
}

export interface SoundView {
  peaks: number[];
  seconds: number;
  rate: number;
  channels: number;
}

export interface SourceInfo {
  name: string;
  kind: string;
  state: string;
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

export interface StageView {
  stage: string;
  done: number;
  failed: number;
  pending: number;
  seconds: number;
  per_minute: number | null;
  last_minute: number | null;
}

export type TaskDecision = "accept" | "change" | "reject";

export interface TaskPair {
  task: string;
  category: string;
  query: string;
  winner: Winner;
  a: TaskSide;
  b: TaskSide;
}

export interface TaskQueue {
  total: number;
  undecided: number;
  accepted: number;
  changed: number;
  rejected: number;
  tasks: TaskView[];
}

export interface TaskReview {
  reviewer: string;
  decision: TaskDecision;
  query: string;
  makes: string[];
  comment: string;
}

export interface TaskSide {
  number: number;
  attempts: number;
  results: number;
  passed: number;
  turns: number;
  tokens: number;
}

export interface TaskView {
  number: number;
  id: string;
  category: string;
  keyword: string;
  language: string;
  query: string;
  files: string[];
  outputs: string[];
  reference: string;
  checks: string;
  review: TaskReview | null;
}

export interface TrainingRun {
  name: string;
  model: string;
  steps: number;
  finished: boolean;
  curves: Curve[];
  held_out: Curve[];
  evaluations: EvaluationPoint[];
}

export interface TurnAuthor {
  kind: AuthorKind;
  model: string;
}

export interface TurnDifference {
  text: boolean;
  code: boolean;
  output: boolean;
}

export interface TurnView {
  asked: string[];
  text: string;
  cells: CellView[];
  prompt_tokens: number | null;
  completion_tokens: number | null;
  micro_usd: number | null;
  trained: boolean;
}

export interface Verdict {
  trajectory: Digest;
  findings: Finding[];
  accepted: boolean;
  opinion?: Opinion | null;
  checker: string;
}

export interface View {
  row: Row;
  location: string | null;
  system: string;
  query: string;
  files: FileView[];
  reference: string;
  turns: TurnView[];
  first_turn: number;
  turn_count: number;
  outputs: FileView[];
  verdict: Verdict | null;
  evaluation: EvaluationView | null;
  reviews: Review[];
  reviewable: boolean;
  editable: boolean;
  edit_problem: string;
  edits: EditInfo[];
}

export type Winner = "a" | "b" | "neither" | "unknown";

export interface WrittenTurn {
  recorded: number | null;
  model: string | null;
  text: string;
  cells: string[];
}

/** What each route takes and answers. */
export interface Routes {
  "GET /api/openapi.json": { query: null; body: null; answer: unknown };
  "GET /api/data": { query: null; body: null; answer: SourceInfo[] };
  "GET /api/data/{name}": { query: { from?: number; count?: number; sort?: string; descending?: boolean; category?: string; keyword?: string; origin?: string; kinds?: string; language?: string; teacher?: string; format?: string; verdict?: string; rejected_by?: string; upstream?: string; fixed?: string; strict?: string; end?: string; error?: string; min_turns?: number; max_turns?: number | null; min_tokens?: number; max_tokens?: number | null; min_usd?: number; max_usd?: number | null; search?: string; role?: string; task?: string; after?: number; review?: string; reviewer?: string; label?: string; edited?: boolean }; body: null; answer: Page };
  "GET /api/data/{name}/facets": { query: null; body: null; answer: Facet[] };
  "GET /api/data/{name}/changes": { query: null; body: null; answer: ListState };
  "GET /api/data/{name}/{number}": { query: { turn?: number }; body: null; answer: View };
  "GET /api/data/{name}/{number}/raw": { query: null; body: null; answer: unknown };
  "GET /api/data/{name}/files/{id}": { query: { name?: string; head?: number | null }; body: null; answer: null };
  "GET /api/data/{name}/files/{id}/page": { query: { name?: string; from?: number; sheet?: number }; body: null; answer: FilePage };
  "GET /api/data/{name}/files/{id}/frame": { query: null; body: null; answer: null };
  "GET /api/compare": { query: { a?: string; b?: string; a_teacher?: string; b_teacher?: string; measure?: string; flips?: boolean; from?: number; count?: number }; body: null; answer: Comparison };
  "GET /api/compare/matrix": { query: { a?: string; b?: string; c?: string; d?: string; e?: string; f?: string; a_teacher?: string; b_teacher?: string; c_teacher?: string; d_teacher?: string; e_teacher?: string; f_teacher?: string; measure?: string; flips?: boolean; from?: number; count?: number }; body: null; answer: Matrix };
  "GET /api/compare/pair": { query: { a: string; a_number: number; b: string; b_number: number; turn?: number }; body: null; answer: PairView };
  "GET /api/events": { query: null; body: null; answer: SourceInfo[] };
  "GET /api/data/{name}/status": { query: null; body: null; answer: RunStatus };
  "GET /api/data/{name}/events": { query: null; body: null; answer: RunStatus };
  "POST /api/data/{name}/retry": { query: null; body: { stage: string; kind: string }; answer: RetriedUnits[] };
  "GET /api/data/{name}/recipe": { query: { beside?: string }; body: null; answer: RecipeView };
  "GET /api/data/{name}/statistics": { query: null; body: null; answer: DatasetStatistics };
  "GET /api/results": { query: null; body: null; answer: Results };
  "GET /api/results/training": { query: null; body: null; answer: TrainingRun[] };
  "GET /api/results/training/events": { query: null; body: null; answer: TrainingRun[] };
  "GET /api/data/{name}/reviews": { query: null; body: null; answer: ReviewSummary };
  "GET /api/data/{name}/reviews/events": { query: null; body: null; answer: ReviewSummary };
  "PUT /api/data/{name}/{number}/review": { query: null; body: { trajectory: string; reviewer: string; decision?: "accept" | "reject" | null; label: string; comment: string }; answer: Review };
  "GET /api/data/{name}/tasks": { query: { from?: number; count?: number; decision?: string }; body: null; answer: TaskQueue };
  "PUT /api/data/{name}/tasks/{id}/review": { query: null; body: { reviewer: string; decision: "accept" | "change" | "reject"; query: string; makes: string[]; comment: string }; answer: TaskReview };
  "GET /api/data/{name}/edits": { query: null; body: null; answer: EditInfo[] };
  "GET /api/data/{name}/preferences": { query: null; body: null; answer: null };
  "GET /api/data/{name}/{number}/edits/{id}": { query: null; body: null; answer: View };
  "POST /api/data/{name}/{number}/forks": { query: null; body: { trajectory: string; turn: number; editor: string; turns?: ({ recorded?: number | null; model?: string | null; text?: string; cells?: string[] })[]; resume?: boolean }; answer: ForkView };
  "GET /api/agents": { query: null; body: null; answer: AgentList };
  "GET /api/forks/{id}": { query: null; body: null; answer: ForkView };
  "DELETE /api/forks/{id}": { query: null; body: null; answer: unknown };
  "POST /api/forks/{id}/turns": { query: null; body: { after: number; turns: ({ recorded?: number | null; model?: string | null; text?: string; cells?: string[] })[] }; answer: ForkView };
  "POST /api/forks/{id}/back": { query: null; body: { keep: number }; answer: ForkView };
  "POST /api/forks/{id}/continue": { query: null; body: { after: number; agent?: string | null; endpoint?: { address: string; model: string; key_env?: string | null } | null; file?: string | null; turns: number; tokens: number; usd?: number | null }; answer: ForkView };
  "POST /api/forks/{id}/stop": { query: null; body: null; answer: ForkView };
  "POST /api/forks/{id}/save": { query: null; body: { repair: boolean; pair: boolean }; answer: ForkView };
  "GET /api/chats": { query: null; body: null; answer: ChatList };
  "POST /api/chats": { query: null; body: { agent?: string | null; conversation?: string | null; about?: { name: string; number: number } | null; format?: string | null; endpoint?: { address: string; model: string; key_env?: string | null } | null; file?: string | null }; answer: ChatView };
  "GET /api/chats/{id}": { query: { after?: number; generation?: number; from?: number }; body: null; answer: ChatView };
  "DELETE /api/chats/{id}": { query: null; body: null; answer: unknown };
  "POST /api/chats/{id}/messages": { query: null; body: { text: string; replaces?: number | null }; answer: unknown };
  "POST /api/chats/{id}/retry": { query: null; body: null; answer: unknown };
  "POST /api/chats/{id}/continue": { query: null; body: null; answer: unknown };
  "POST /api/chats/{id}/stop": { query: null; body: null; answer: unknown };
  "POST /api/chats/{id}/grade": { query: null; body: null; answer: unknown };
  "POST /api/chats/{id}/dataset": { query: null; body: null; answer: unknown };
  "GET /api/chats/{id}/export/{form}": { query: null; body: null; answer: null };
  "GET /api/chats/{id}/file": { query: { path: string }; body: null; answer: null };
  "GET /api/chats/{id}/file/page": { query: { name?: string; from?: number; sheet?: number }; body: null; answer: FilePage };
  "GET /api/chats/{id}/file/frame": { query: { path: string }; body: null; answer: null };
  "PUT /api/chats/{id}/files": { query: null; body: { name: string; base64: string }; answer: unknown };
}
