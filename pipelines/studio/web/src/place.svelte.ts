/** Where the app is: the path, and the filters of the list in the query. Both are the browser's address. */

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

  /** Goes to an address of the app. */
  go(address: string) {
    history.pushState(null, "", address);
    this.read();
  }

  /** Sets or, with an empty value, removes a filter, and shows the first page. */
  filter(name: string, value: string) {
    const query = new URLSearchParams(this.query);
    if (value) query.set(name, value);
    else query.delete(name);
    if (name !== "from") query.delete("from");
    history.replaceState(null, "", `?${query}`);
    this.read();
  }
}

export const place = new Place();
