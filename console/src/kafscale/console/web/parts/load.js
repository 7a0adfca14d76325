// Data of the API in a screen. While it is asked again, the old one stays.
import { html, useCallback, useEffect, useState } from "../html.js";
import { get, query } from "../api.js";
import { Failure } from "./failure.js";

/** {data, error, loading, reload}. Asks when the path or the query changes, and by `reload`. `values`: the query.
 * `every(data)`: ms after which it asks again while somebody looks at the page. */
export function useLoad(path, values = {}, every = undefined) {
  const [state, setState] = useState({ data: null, error: null, loading: true });
  const [turn, setTurn] = useState(0);
  const where = path + query(values);
  useEffect(() => {
    const stop = new AbortController();
    setState((old) => ({ ...old, loading: true }));
    get(path, values, stop.signal).then(
      (data) => setState({ data, error: null, loading: false }),
      (error) => stop.signal.aborted || setState((old) => ({ ...old, error, loading: false })),
    );
    return () => stop.abort();
  }, [where, turn]);
  const reload = useCallback(() => setTurn((now) => now + 1), []);
  useEffect(() => {
    if (!every || state.loading) return;
    let timer = 0;
    const wait = () => {
      clearTimeout(timer);
      if (!document.hidden) timer = setTimeout(reload, every(state.data));
    };
    wait();
    document.addEventListener("visibilitychange", wait);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", wait);
    };
  }, [state]);
  return { ...state, reload };
}

/** `show(data, reload)` when the answer is there. */
export function Loaded({ path, values, show, every }) {
  const { data, error, loading, reload } = useLoad(path, values, every);
  return html`<div aria-busy=${loading}>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data ? show(data, reload) : loading && html`<p>Loading…</p>`}
  </div>`;
}
