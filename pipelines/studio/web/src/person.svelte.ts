/** Who decides and edits in this browser. */

/** Where the browser keeps the name. */
const KEY = "pybench-reviewer";

class Person {
  /** Empty until the person gives it. */
  name = $state(localStorage.getItem(KEY) ?? "");

  /** Keeps the name for the next time; an empty one is forgotten. */
  rename(name: string) {
    if (name) localStorage.setItem(KEY, name);
    else localStorage.removeItem(KEY);
    this.name = name;
  }
}

export const person = new Person();
