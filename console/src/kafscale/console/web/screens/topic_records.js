// The records of a topic, in one order over all partitions. The address has the whole view.
import { html, useState } from "../html.js";
import { path } from "../api.js";
import { setQuery } from "../router.js";
import { Failure } from "../parts/failure.js";
import { useLoad } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { count, counted } from "../parts/format.js";
import { Produce } from "../parts/produce.js";
import { Redrive } from "../parts/redrive.js";
import { ProduceLines } from "../parts/produce_lines.js";
import { FORMATS } from "../parts/record.js";
import { Rows } from "./topic_rows.js";
import { Tail } from "./topic_tail.js";

const PLACES = [["newest", "newest"], ["oldest", "oldest"], ["hour", "last hour"], ["time", "time…"], ["offset", "offset…"]];

export default function Records({ topic, query }) {
  const [turn, setTurn] = useState(0);
  const tails = query.tail === "1";
  return html`
    <${Toolbar} topic=${topic} query=${query} tails=${tails} reload=${() => setTurn((now) => now + 1)} />
    ${tails ? html`<${Tail} topic=${topic} query=${query} />` : html`<${Page} key=${turn} topic=${topic} query=${query} />`}
  `;
}

function Page({ topic, query }) {
  const { from, at, partition, cursor, walk, isolation, key_as, value_as, limit } = query;
  const { data, error, loading, reload } = useLoad(path`/topics/${topic}/records`, { from, at, partition, cursor, walk, isolation, key_as, value_as, limit });
  const newestFirst = !from || from === "newest";
  const items = data && (newestFirst === (data.walk === "older") ? data.items : data.items.toReversed());
  return html`<div aria-busy=${loading}>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data && html`
      ${data.deleted > 0 && html`<p class="hint">${count(data.deleted)} offsets of this place are deleted; this is what is left.</p>`}
      ${data.stopped && html`<p class="hint warn-text" role="status">${data.stopped === "time"
        ? "This page is not full: its time was over. Go on with the next one."
        : "This page is not full: its records are large. Go on with the next one."}</p>`}
      ${items.length
        ? html`<${Rows} topic=${topic} rows=${items} query=${query} /><${Redrive} topic=${topic} rows=${items} isolation=${isolation} />`
        : html`<${Nothing} topic=${topic} data=${data} query=${query} />`}
      <${Pages} data=${data} shown=${items.length} newestFirst=${newestFirst} />`}
  </div>`;
}

/** Changes of the view begin at its first page again. */
function view(values) {
  setQuery({ cursor: "", walk: "", open: "", ...values });
}

function Toolbar({ topic, query, tails, reload }) {
  const me = useMe();
  const { data } = useLoad(path`/topics/${topic}`);
  const place = query.from === "time" && query.at === "-1h" ? "hour" : query.from || "newest";
  const choose = (event) => {
    const from = event.target.value;
    if (from === "hour") view({ from: "time", at: "-1h" });
    else view({ from: from === "newest" ? "" : from, at: from === "time" ? new Date().toISOString() : from === "offset" ? "0" : "" });
  };
  return html`<div class="tools">
    <label>Partition <select value=${query.partition ?? ""} onChange=${(event) => view({ partition: event.target.value })}>
      <option value="">all</option>
      ${data?.partitions.map((each) => html`<option key=${each.partition} value=${each.partition}>${each.partition}</option>`)}
      ${!data && query.partition && html`<option value=${query.partition}>${query.partition}</option>`}
    </select></label>
    ${!tails && html`<label>From <select value=${place} onChange=${choose}>
      ${PLACES.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}
    </select></label>`}
    ${!tails && (place === "time" || place === "offset") && html`<${At} key=${place} place=${place} at=${query.at ?? ""} />`}
    ${[["key_as", "Key as"], ["value_as", "Value as"]].map(([name, title]) => html`
      <label key=${name}>${title} <select value=${query[name] ?? "auto"} onChange=${(event) => setQuery({ [name]: event.target.value === "auto" ? "" : event.target.value })}>
        ${FORMATS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select></label>`)}
    <label><input type="checkbox" checked=${query.isolation === "uncommitted"} onChange=${(event) => view({ isolation: event.target.checked ? "uncommitted" : "" })} /> uncommitted</label>
    ${!tails && html`<button type="button" class="quiet" onClick=${reload}>Refresh</button>`}
    <button type="button" aria-pressed=${tails} onClick=${() => view({ tail: tails ? "" : "1" })}>Tail</button>
    ${!me.read_only && html`<${Produce} topic=${topic} partitions=${data?.partitions.map((each) => each.partition)} />
      <${ProduceLines} topic=${topic} />`}
  </div>`;
}

function At({ place, at }) {
  const submit = (event) => {
    event.preventDefault();
    view({ from: place, at: new FormData(event.target).get("at").trim() });
  };
  const hint = place === "time" ? "2026-01-31T08:00Z, -15m, or ms since 1970" : "an offset";
  return html`<form onSubmit=${submit}>
    <input name="at" class="at" aria-label=${place === "time" ? "Time" : "Offset"} title=${hint} placeholder=${hint} value=${at} required />
    <button>Go</button>
  </form>`;
}

function Nothing({ topic, data, query }) {
  if (data.waiting > 0)
    return html`<p class="hint">No committed record is here. At most ${counted(data.waiting, "record")} ${data.waiting === 1 ? "is" : "are"} in an open transaction or behind one.
      <button type="button" class="quiet" onClick=${() => view({ isolation: "uncommitted" })}>Show uncommitted records</button></p>`;
  if (data.offsets === 0 && !data.deleted)
    return html`<p class="hint">There is no record ${query.partition ? "in this partition" : "yet"}. Send the first: <code>echo hello | kafscale produce ${topic}</code></p>`;
  if (query.from === "time" && !query.cursor) return html`<p class="hint">No record has this time or a later one. <${Newest} /></p>`;
  return html`<p class="hint">No record is here. <${Newest} /></p>`;
}

function Newest() {
  return html`<button type="button" class="quiet" onClick=${() => view({ from: "", at: "" })}>Show the newest</button>`;
}

/** Back and forth. A page is between two cuts of the log, so neighbours repeat nothing and leave nothing out. */
function Pages({ data, shown, newestFirst }) {
  const turn = (walk, cursor) => () => {
    setQuery({ cursor, walk, open: "" });
    scrollTo(0, 0);
  };
  const newer = html`<button type="button" disabled=${data.at_end} onClick=${turn("newer", data.newer)}>${newestFirst ? "‹ Newer" : "Newer ›"}</button>`;
  const older = html`<button type="button" disabled=${!data.older} onClick=${turn("older", data.older)}>${newestFirst ? "Older ›" : "‹ Older"}</button>`;
  return html`<div class="pages">
    ${newestFirst ? [newer, older] : [older, newer]}
    <span title="Offsets between the first and the last; compaction and transactions leave gaps.">${count(shown)} of at most ${count(data.offsets)} in ${data.partitions === 1 ? "1 partition" : `${count(data.partitions)} partitions`}</span>
  </div>`;
}
