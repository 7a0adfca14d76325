// An answer that goes on, in a screen: its lines, merged into one value.
import { useCallback, useEffect, useRef, useState } from "../html.js";
import { lines } from "../api.js";

/** {data, error, busy, stopped, run, stop}. `run(path, {values, body})` begins anew; `take(data, item)` merges a line
 * into the value, by default by its names. It is stopped when the screen is left. */
export function useLines(take = (data, item) => ({ ...data, ...item })) {
  const [state, setState] = useState({ data: {}, error: null, busy: false, stopped: false });
  const current = useRef(null);
  useEffect(() => () => current.current?.abort(), []);
  const run = useCallback(async (path, { values, body, before = {} } = {}) => {
    current.current?.abort();
    const mine = (current.current = new AbortController());
    let data = before;
    const show = (more) => !mine.signal.aborted && setState((old) => ({ ...old, data, ...more }));
    show({ error: null, busy: true, stopped: false });
    try {
      await lines(path, {
        values,
        body,
        signal: mine.signal,
        onItem: (item) => {
          data = take(data, item);
          show({});
        },
      });
      show({ busy: false });
    } catch (error) {
      show({ busy: false, error });
    }
  }, []);
  const stop = useCallback(() => {
    current.current?.abort();
    setState((old) => ({ ...old, busy: false, stopped: true }));
  }, []);
  return { ...state, run, stop };
}
