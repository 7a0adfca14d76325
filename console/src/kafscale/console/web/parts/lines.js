// An answer that goes on, in a screen: its lines, merged into one value.
import { useCallback, useEffect, useRef, useState } from "../html.js";
import { lines } from "../api.js";

const NOTHING = { data: {}, error: null, busy: false, stopped: false };

/** {data, error, busy, stopped, run, stop, put}. `run(path, {values, body, onState})` begins anew; `take(data, item)`
 * merges a line into the value, by default by its names. It is stopped when the screen is left. `onState` gets each
 * state, and `put` shows an earlier one, or nothing. */
export function useLines(take = (data, item) => ({ ...data, ...item })) {
  const [state, setState] = useState(NOTHING);
  const current = useRef(null);
  useEffect(() => () => current.current?.abort(), []);
  const run = useCallback(async (path, { values, body, before = {}, onState } = {}) => {
    current.current?.abort();
    const mine = (current.current = new AbortController());
    let now = { ...NOTHING, data: before, busy: true };
    const show = (more) => {
      if (mine.signal.aborted) return;
      now = { ...now, ...more };
      setState(now);
      onState?.(now);
    };
    show({});
    try {
      await lines(path, { values, body, signal: mine.signal, onItem: (item) => show({ data: take(now.data, item) }) });
      show({ busy: false });
    } catch (error) {
      show({ busy: false, error });
    }
  }, []);
  const stop = useCallback(() => {
    current.current?.abort();
    setState((old) => ({ ...old, busy: false, stopped: true }));
  }, []);
  const put = useCallback((earlier = NOTHING) => {
    current.current?.abort();
    setState(earlier);
  }, []);
  return { ...state, run, stop, put };
}
