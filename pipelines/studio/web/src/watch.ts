/** What the server sends whenever it has changed. */

/**
 * Follows an address while the page is visible, since browsers allow few open connections to one server. `lost` is called
 * when the connection breaks; the browser opens it again by itself. Returns what ends it.
 */
export function watch<T>(path: string, got: (value: T) => void, lost: (message: string) => void): () => void {
  let source: EventSource | undefined;

  function close() {
    source?.close();
    source = undefined;
  }

  function open() {
    const opened = new EventSource(path);
    opened.onmessage = (event) => got(JSON.parse(event.data));
    opened.onerror = () => {
      if (source === opened) lost("The studio does not answer. Is `pybench studio` still running?");
    };
    source = opened;
  }

  function change() {
    if (document.hidden) close();
    else if (!source) open();
  }

  document.addEventListener("visibilitychange", change);
  change();
  return () => {
    document.removeEventListener("visibilitychange", change);
    close();
  };
}
