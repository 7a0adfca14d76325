// SQL over the stored logs. The query is in the fragment of the address, so no server's log of requests has it.
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { Failure } from "../parts/failure.js";
import { useLines } from "../parts/lines.js";
import { Loaded } from "../parts/load.js";
import { count, counted, duration } from "../parts/format.js";
import { Downloads, save } from "../parts/download.js";

const EXAMPLES = [
  ["Records per topic", "select topic, count(*) as records\nfrom records\ngroup by 1 order by 2 desc"],
  ["The newest records of a topic", "select partition, \"offset\", timestamp, key_text, value_text\nfrom records\nwhere topic = 'orders'\norder by timestamp desc limit 20"],
  ["A field of JSON", "select try(value ->> '$.country') as country, count(*) as records\nfrom records\nwhere topic = 'orders'\ngroup by 1 order by 2 desc"],
  ["Which topics are large", "select topic, sum(bytes) as bytes, sum(segments) as segments, max(newest) as newest\nfrom partitions\ngroup by 1 order by 2 desc"],
  ["How records are compressed", "select topic, codec, sum(records) as records, sum(bytes) as bytes\nfrom batches\ngroup by 1, 2 order by 4 desc"],
  ["Which groups are behind", "select group_id, topic, sum(records) as unread, max(time_ms) as behind_ms\nfrom lag\ngroup by 1, 2 order by 3 desc"],
];

export default function Sql() {
  const [text, setText] = useState(() => fromFragment() || EXAMPLES[0][1]);
  const answer = useLines(take);
  const began = useRef(0);
  const ran = useRef(""); // the text may have been edited since
  const start = () => {
    history.replaceState(history.state, "", `#${encodeURIComponent(text)}`);
    began.current = performance.now();
    ran.current = text;
    answer.run("/sql", { body: { text } });
  };
  const pressed = (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    if (!answer.busy) start();
  };
  const result = useMemo(() => answer.data.columns && html`<${Result} answer=${answer.data} text=${ran.current} />`, [answer.data]);
  return html`<h1>SQL</h1>
    <div class="split">
      <aside aria-label="Tables and examples">
        <h2>Examples</h2>
        <ul class="plain">${EXAMPLES.map(([title, example]) => html`<li key=${title}><button type="button" class="link" onClick=${() => setText(example)}>${title}</button></li>`)}</ul>
        <h2>Tables</h2>
        <${Loaded} path="/sql/tables" show=${(found) => found.items.map((each) => html`<details key=${each.table}>
          <summary><code>${each.table}</code></summary><p class="mono">${each.columns.join(", ")}</p></details>`)} />
      </aside>
      <section>
        <label for="query">Query</label>
        <textarea id="query" rows="8" spellcheck=${false} value=${text} onInput=${(event) => setText(event.target.value)} onKeyDown=${pressed}></textarea>
        <div class="tools">
          <button type="button" class="primary" disabled=${answer.busy} onClick=${start}>Run</button>
          <button type="button" disabled=${!answer.busy} onClick=${answer.stop}>Cancel</button>
          <span role="status">${said(answer, answer.data.endedAt - began.current)}</span>
        </div>
        ${answer.error && html`<${Failure} error=${answer.error} />`}
        ${result}
        <p class="hint">Ctrl-Enter runs it. A query sees the topics that you may read, as they were when it began; it puts no load on a broker. It ends at 10,000 rows, 5 MiB, or 60 s.</p>
      </section>
    </div>`;
}

function fromFragment() {
  try {
    return decodeURIComponent(location.hash.slice(1));
  } catch {
    return ""; // a fragment that is no text
  }
}

/** Rows are kept in one list: ten thousand would be copied a hundred times. */
function take(data, item) {
  if (item.end) return { ...data, ...item, endedAt: performance.now() };
  if (!item.rows) return { ...data, ...item };
  data.rows ??= [];
  data.rows.push(...item.rows);
  return { ...data };
}

function said({ data, busy, stopped }, tookMs) {
  if (busy) return data.records === undefined ? "Starting…" : `Read ${count(data.read)} of at most ${count(data.records)} records…`;
  if (stopped) return "Cancelled.";
  if (!data.end) return "";
  return `${counted(data.end.rows, "row")} in ${duration(tookMs)}`;
}

function Result({ answer, text }) {
  const { columns, rows = [], end } = answer;
  const numeric = columns.map((column) => /^(u?int|float|double|decimal)/.test(column.type));
  return html`
    ${end?.notices.map((notice) => html`<p key=${notice} class="hint warn-text">${notice}</p>`)}
    ${end?.cut && html`<p class="hint warn-text">Only the first ${count(end.rows)} rows are here: the answer is cut at ${end.cut}. Ask for less, or use <code>kafscale sql</code>.</p>`}
    <div class="scroll tall" tabindex="0" role="region" aria-label="Result"><table class="wide">
      <caption>Result</caption>
      <thead><tr>${columns.map((column, at) => html`<th key=${at} scope="col" class=${numeric[at] ? "number" : ""} title=${column.type}>${column.name}</th>`)}</tr></thead>
      <tbody>${rows.slice(0, SHOWN).map((row, y) => html`<tr key=${y}>${row.map((value, x) => html`<td key=${x} class=${numeric[x] ? "number" : "cell"}>${shown(value)}</td>`)}</tr>`)}</tbody>
    </table></div>
    ${rows.length > SHOWN && html`<p class="hint">The first ${count(SHOWN)} rows are shown; the files have all ${count(rows.length)}.</p>`}
    ${end && html`<${Downloads} name="query" columns=${columns.map((each) => each.name)} rows=${rows} more=${html`<${Parquet} text=${text} />`} />`}`;
}

/** The file is made where the types are: the query runs again. */
function Parquet({ text }) {
  const { data, error, busy, run } = useLines(takeParts);
  useEffect(() => {
    if (data.end && data.parts) save("query.parquet", "application/vnd.apache.parquet", data.parts);
  }, [data.end]);
  return html`<button type="button" disabled=${busy} onClick=${() => run("/sql", { body: { text, format: "parquet" } })}>${busy ? "Running again…" : "Download Parquet"}</button>
    ${data.end?.cut && html`<span class="hint warn-text">The Parquet file has the first ${count(data.end.rows)} rows: it is cut at ${data.end.cut}.</span>`}
    ${error && html`<${Failure} error=${error} />`}`;
}

function takeParts(data, item) {
  if (!item.parquet) return { ...data, ...item };
  return { ...data, parts: [...(data.parts ?? []), Uint8Array.from(atob(item.parquet), (letter) => letter.charCodeAt(0))] };
}

const SHOWN = 1_000;

function shown(value) {
  if (value === null) return html`<span class="faint">null</span>`;
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
