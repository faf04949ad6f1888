import type { AgentList, ContinueRequest } from "./types";

/** The model that a request names. */
export type ModelChoice = Pick<ContinueRequest, "agent" | "endpoint" | "file">;

/** A model that can be chosen. The fields of an endpoint or a file begin with what it names. */
export interface ModelOption extends ModelChoice {
  label: string;
}

const isSame = (one: ModelChoice, other: ModelChoice) =>
  one.agent === other.agent && one.file === other.file &&
  one.endpoint?.address === other.endpoint?.address && one.endpoint?.model === other.endpoint?.model &&
  one.endpoint?.key_env === other.endpoint?.key_env;

/** Agents, endpoints that were used before, and others, where the page may name them. The fields of these say what was chosen last. */
export function modelOptions({ agents, endpoints }: Pick<AgentList, "agents" | "endpoints">, last?: ModelChoice): ModelOption[] {
  const none = { agent: null, endpoint: null, file: null };
  const known = [
    ...agents.map((agent) => ({ ...none, label: agent, agent })),
    ...(endpoints ?? []).map((one) => ({ ...none, label: `${one.model} at ${one.address}`, endpoint: one })),
  ];
  if (!endpoints) return known;
  const isKnown = !last || known.some((one) => isSame(one, last));
  return [
    ...known,
    { ...none, label: "a checkpoint or GGUF file…", file: last?.file ?? "" },
    { ...none, label: "another endpoint…", endpoint: (!isKnown && last?.endpoint) || { address: "", model: "", key_env: null } },
  ];
}

/** Number of the option that was chosen last; the first one if there is none. */
export function lastOption(options: ModelOption[], last?: ModelChoice): number {
  return Math.max(0, options.findIndex((one) => last && isSame(one, last)));
}

/** The model of an option with what its fields say. */
export function chosenModel(option: ModelOption, fields: FormData): ModelChoice {
  const text = (name: string) => String(fields.get(name) ?? "").trim();
  return {
    agent: option.agent,
    endpoint: option.endpoint && { address: text("address"), model: text("model"), key_env: text("key_env") || null },
    file: option.file === null ? null : text("file"),
  };
}

/** Where the tab keeps the model that was chosen for an edit. */
const key = (edit: string) => `pybench-model ${edit}`;

/** The model that was chosen for an edit in this tab. */
export function keptModel(edit: string): ModelChoice | undefined {
  const text = sessionStorage.getItem(key(edit));
  return text ? (JSON.parse(text) as ModelChoice) : undefined;
}

export const keepModel = (edit: string, choice: ModelChoice) => sessionStorage.setItem(key(edit), JSON.stringify(choice));
