/** The rows that the list showed last, so that a trajectory knows its neighbors. */
export const shown = $state<{ name: string; query: string; numbers: number[] }>({ name: "", query: "", numbers: [] });
