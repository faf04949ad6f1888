/** Where the app is: the path, and the filters of the list in the query. Both are the browser's address. */

interface Open {
  page: "data" | "review" | "edit" | "compare" | "matrix" | "pair" | "chat" | "results" | "training" | "recipe" | "statistics" | "tasks";
  name: string;
  number: number;
  turn: number;
  edit: string;
}

const NOWHERE: Open = { page: "data", name: "", number: 0, turn: 0, edit: "" };

class Place {
  path = $state(location.pathname);
  query = $state(new URLSearchParams(location.search));

  constructor() {
    addEventListener("popstate", () => this.read());
  }

  private read() {
    this.path = location.pathname;
    this.query = new URLSearchParams(location.search);
  }

  /** The open page, the name of its run or dataset, the number of its trajectory, and the turn or the edit of that. */
  get open(): Open {
    if (this.path === "/compare") return { ...NOWHERE, page: "compare" };
    if (this.path === "/compare/matrix") return { ...NOWHERE, page: "matrix" };
    if (this.path === "/compare/pair") return { ...NOWHERE, page: "pair" };
    if (this.path === "/results") return { ...NOWHERE, page: "results" };
    if (this.path === "/results/training") return { ...NOWHERE, page: "training" };
    if (this.path === "/chat") return { ...NOWHERE, page: "chat" };
    const chat = /^\/chat\/([0-9a-f]+)$/.exec(this.path);
    if (chat?.[1]) return { ...NOWHERE, page: "chat", name: chat[1] };
    const found = /^\/(data|review|edit)\/([^/]+)(?:\/(\d+)(?:\/(\d+)|\/edits\/([0-9a-f]+))?)?\/?$/.exec(this.path);
    const about = /^\/data\/([^/]+)\/(recipe|statistics|tasks)\/?$/.exec(this.path);
    try {
      if (about) return { ...NOWHERE, page: about[2] as Open["page"], name: decodeURIComponent(about[1] ?? "") };
      return {
        page: (found?.[1] as Open["page"] | undefined) ?? "data",
        name: decodeURIComponent(found?.[2] ?? ""),
        number: Number(found?.[3] ?? 0),
        turn: Number(found?.[4] ?? 0),
        edit: found?.[5] ?? "",
      };
    } catch {
      return NOWHERE;
    }
  }

  /** Goes to an address of the app, perhaps in place of the present one. */
  go(address: string, replaces = false) {
    if (replaces) history.replaceState(null, "", address);
    else history.pushState(null, "", address);
    this.read();
    scrollTo(0, 0);
  }

  /** Sets filters, or removes those with an empty value; shows the first page unless `from` is set. */
  filter(values: Record<string, string>) {
    const query = new URLSearchParams(this.query);
    query.delete("from");
    for (const [name, value] of Object.entries(values)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    history.replaceState(null, "", `${location.pathname}?${query}`);
    this.read();
  }
}

export const place = new Place();

/** The address of a list or of a trajectory, with the filters of the list. */
export const address = (name: string, number?: number) =>
  `/data/${encodeURIComponent(name)}${number ? `/${number}` : ""}${place.query.size ? `?${place.query}` : ""}`;

/** The address of the page that edits a turn. */
export const editAddress = (name: string, number: number, turn: number) =>
  `/edit/${encodeURIComponent(name)}/${number}/${turn}${place.query.size ? `?${place.query}` : ""}`;

/** Follows a link within the app, unless the person wants a new tab. */
export function follow(event: MouseEvent, to: string) {
  if (event.button || event.metaKey || event.ctrlKey || event.shiftKey) return;
  event.preventDefault();
  place.go(to);
}

/** Millionths of a US dollar, as text. */
export const dollars = (micro: number) => `$${(micro / 1e6).toFixed(micro < 10_000 ? 5 : micro < 1e6 ? 4 : 2)}`;

/** Whether a key was typed into a field, or is part of a shortcut of the browser. */
export const isTyping = (event: KeyboardEvent) =>
  event.metaKey || event.ctrlKey || event.altKey ||
  event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement || event.target instanceof HTMLTextAreaElement;

/** Whether Enter acts on what has the focus, so that it must not open a row of the list. */
export const actsOnEnter = (event: KeyboardEvent) =>
  event.target instanceof Element && event.target.closest("a, button, summary, [role=dialog]") !== null;
