// Records as they come, the newest first. It rests while nobody looks, and goes on where it was.
import { html, useEffect, useRef, useState } from "../html.js";
import { lines, path } from "../api.js";
import { Failure } from "../parts/failure.js";
import { count } from "../parts/format.js";
import { Rows } from "./topic_rows.js";

const ROWS_MAX = 500;

export function Tail({ topic, query }) {
  const { partition, isolation, key_as, value_as } = query;
  const [shown, setShown] = useState({ rows: [], notShown: 0, all: 0 });
  const [state, setState] = useState({ live: false });
  const at = useRef(undefined);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    at.current = undefined;
    setShown({ rows: [], notShown: 0, all: 0 });
  }, [topic, partition, isolation]);
  useEffect(() => {
    let stop = null;
    const took = (line) => {
      if (line.over) return setState({ live: false, over: line.over });
      at.current = line.at;
      setState({ live: true });
      if (line.items.length || line.not_shown)
        setShown((old) => ({
          rows: [...line.items.toReversed(), ...old.rows].slice(0, ROWS_MAX),
          all: old.all + line.items.length + line.not_shown,
          notShown: old.notShown + line.not_shown,
        }));
    };
    const begin = () => {
      stop = new AbortController();
      const { signal } = stop;
      const values = { partition, isolation, key_as, value_as, cursor: at.current };
      lines(path`/topics/${topic}/tail`, { values, signal, onItem: took }).catch((error) => signal.aborted || setState({ live: false, error }));
    };
    const looked = () => {
      if (document.hidden) {
        stop?.abort();
        stop = null;
        setState({ live: false, rests: true });
      } else if (!stop) begin();
    };
    if (!document.hidden) begin();
    document.addEventListener("visibilitychange", looked);
    return () => {
      document.removeEventListener("visibilitychange", looked);
      stop?.abort();
    };
  }, [topic, partition, isolation, key_as, value_as, turn]);
  const again = () => {
    setState({ live: false });
    setTurn((now) => now + 1);
  };
  return html`
    ${state.error && html`<${Failure} error=${state.error} retry=${again} />`}
    <p class="tail"><span class=${state.live ? "good-text" : "faint"}>${state.live ? "● live" : state.over ? "○ ended" : state.rests ? "○ rests" : state.error ? "○ stopped" : "○ begins…"}</span>
      ${" "}<span>${count(shown.all)} came${shown.notShown > 0 ? `, ${count(shown.notShown)} not shown (a second shows 200 or 1 MiB)` : ""}</span></p>
    ${state.over && html`<p class="hint">The tail is over: ${state.over}. <button type="button" onClick=${again}>Go on</button></p>`}
    ${shown.rows.length > 0
      ? html`<${Rows} topic=${topic} rows=${shown.rows} query=${query} />`
      : html`<p class="hint">It waits for records. Send one: <code>echo hello | kafscale produce ${topic}</code></p>`}
  `;
}
