// The answers of the server, generated from the types in pipelines/studio/src. After a change there, run:
//   UPDATE_TYPES=1 cargo test -p pybench-studio --lib types

export interface CellView {
  code: string | null;
  outputs: OutputView[];
}

export interface ChatFile {
  path: string;
  size: number;
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
}

export interface ChatRequest {
  agent: string | null;
  conversation: string | null;
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

export type Decision = "accept" | "reject";

export type Digest = string;

export interface EditInfo {
  id: string;
  trajectory: string;
  turn: number;
  editor: string;
  saved_at: number;
  repair: boolean;
  pair: boolean;
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
  recorded: WrittenTurn[];
  outputs: FileView[];
  verdict: Verdict | null;
  pairable: boolean;
  saved: EditInfo | null;
}

export interface JudgeView {
  judge: string;
  passed: boolean | null;
  reason: string;
}

export type Measure = "verdict" | "strict" | "fixed" | "upstream";

export interface Mismatch {
  place: string;
  expected: string;
  found: string;
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
}

export interface PairAgreement {
  a: string;
  b: string;
  items: number;
  agree: number;
  kappa: number | null;
  interval: [number, number] | null;
}

export interface PairView {
  a: View;
  b: View;
  turns: TurnDifference[];
  first: number | null;
  first_code: number | null;
}

export type Phase = "replaying" | "waiting" | "running" | "checking" | "checked" | "failed";

export type Preview = "image" | "audio" | "text" | "none";

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
  kinds: string;
  language: string;
  teacher: string;
  format: string;
  verdict: string;
  rejected_by: string;
  upstream: string;
  fixed: string;
  strict: string;
  end: string;
  error: string;
  turns: number;
  tokens: number;
  query: string;
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

export interface TaskPair {
  task: string;
  category: string;
  query: string;
  winner: Winner;
  a: TaskSide;
  b: TaskSide;
}

export interface TaskSide {
  number: number;
  attempts: number;
  results: number;
  passed: number;
  turns: number;
  tokens: number;
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
  outputs: FileView[];
  verdict: Verdict | null;
  evaluation: EvaluationView | null;
  reviews: Review[];
  reviewable: boolean;
  editable: boolean;
  edits: EditInfo[];
}

export type Winner = "a" | "b" | "neither" | "unknown";

export interface WrittenTurn {
  recorded: number | null;
  text: string;
  cells: string[];
}
