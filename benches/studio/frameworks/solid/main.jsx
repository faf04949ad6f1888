import { createEffect, createMemo, createSignal, For, Show } from "solid-js";
import { render } from "solid-js/web";

function App() {
  const [rows, setRows] = createSignal([]);
  const [search, setSearch] = createSignal("");
  const [category, setCategory] = createSignal("");
  const [problem, setProblem] = createSignal("");
  const categories = createMemo(() => [...new Set(rows().map((row) => row.category))]);
  const shown = createMemo(() =>
    rows().filter((row) => (!category() || row.category === category()) && row.query.includes(search())));

  createEffect(() => {
    fetch("/api/rows").then((answer) => answer.json()).then(setRows, (error) => setProblem(error.message));
  });

  return (
    <>
      <form onSubmit={(event) => event.preventDefault()}>
        <input type="search" aria-label="Search" value={search()} onInput={(event) => setSearch(event.currentTarget.value)} />
        <select aria-label="Category" value={category()} onChange={(event) => setCategory(event.currentTarget.value)}>
          <option value="">category</option>
          <For each={categories()}>{(one) => <option value={one}>{one}</option>}</For>
        </select>
      </form>
      <Show when={!problem()} fallback={<p role="alert">{problem()}</p>}>
        <table>
          <tbody>
            <For each={shown()}>
              {(row) => <tr class={row.verdict}><td>{row.number}</td><td>{row.category}</td><td>{row.query}</td></tr>}
            </For>
          </tbody>
        </table>
      </Show>
    </>
  );
}

render(() => <App />, document.getElementById("app"));
