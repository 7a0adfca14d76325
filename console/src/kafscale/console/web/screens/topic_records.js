// The records of a topic, in one order over all partitions. The address has the whole view.
import { html } from "../html.js";
import { path } from "../api.js";
import { Link, setQuery } from "../router.js";
import { Failure } from "../parts/failure.js";
import { useLoad } from "../parts/load.js";
import { useSettings } from "../parts/settings.js";
import { bytes, count, time } from "../parts/format.js";
import { Copies, FORMATS, Reason, preview } from "../parts/record.js";

const PLACES = [["newest", "newest"], ["oldest", "oldest"], ["hour", "last hour"], ["time", "time…"], ["offset", "offset…"]];

export default function Records({ topic, query }) {
  const { from, at, partition, cursor, walk, isolation, key_as, value_as, limit } = query;
  const { data, error, loading, reload } = useLoad(path`/topics/${topic}/records`, { from, at, partition, cursor, walk, isolation, key_as, value_as, limit });
  const newestFirst = !from || from === "newest";
  const items = data && (newestFirst === (data.walk === "older") ? data.items : data.items.toReversed());
  return html`<div aria-busy=${loading}>
    <${Toolbar} topic=${topic} query=${query} reload=${reload} />
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data && html`
      ${data.deleted > 0 && html`<p class="hint">${count(data.deleted)} offsets of this place are deleted; this is what is left.</p>`}
      ${data.stopped && html`<p class="hint warn-text" role="status">${data.stopped === "time"
        ? "This page is not full: its time was over. Go on with the next one."
        : "This page is not full: its records are large. Go on with the next one."}</p>`}
      ${items.length
        ? html`<${Rows} topic=${topic} rows=${items} query=${query} />`
        : html`<${Nothing} topic=${topic} data=${data} query=${query} />`}
      <${Pages} data=${data} shown=${items.length} newestFirst=${newestFirst} />`}
  </div>`;
}

/** Changes of the view begin at its first page again. */
function view(values) {
  setQuery({ cursor: "", walk: "", open: "", ...values });
}

function Toolbar({ topic, query, reload }) {
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
    <label>From <select value=${place} onChange=${choose}>
      ${PLACES.map(([value, title]) => html`<option key=${value} value=${value}>${title}</option>`)}
    </select></label>
    ${(place === "time" || place === "offset") && html`<${At} key=${place} place=${place} at=${query.at ?? ""} />`}
    ${[["key_as", "Key as"], ["value_as", "Value as"]].map(([name, title]) => html`
      <label key=${name}>${title} <select value=${query[name] ?? "auto"} onChange=${(event) => setQuery({ [name]: event.target.value === "auto" ? "" : event.target.value })}>
        ${FORMATS.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
      </select></label>`)}
    <label><input type="checkbox" checked=${query.isolation === "uncommitted"} onChange=${(event) => view({ isolation: event.target.checked ? "uncommitted" : "" })} /> uncommitted</label>
    <button type="button" class="quiet" onClick=${reload}>Refresh</button>
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

function Rows({ topic, rows, query }) {
  const { utc } = useSettings();
  const toggle = (id) => setQuery({ open: query.open === id ? "" : id }, { replace: true });
  return html`<div class="scroll"><table class="records">
    <caption>${rows.length === 1 ? "1 record" : `${count(rows.length)} records`}</caption>
    <thead><tr><th scope="col">Time</th><th scope="col" class="number">Partition</th><th scope="col" class="number">Offset</th>
      <th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="number">Size</th></tr></thead>
    <tbody>
      ${rows.map((row) => {
        const open = query.open === row.id;
        return html`<tr key=${row.id}>
          <td data-title="Time" class="time"><button type="button" class="open" aria-expanded=${open} onClick=${() => toggle(row.id)}>${time(row.timestamp_ms, utc)}</button></td>
          <td data-title="Partition" class="number">${row.partition}</td>
          <td data-title="Offset" class="number"><${Link} href=${recordPath(topic, row, query)}>${row.offset}</${Link}></td>
          <td data-title="Key" class="mono clip">${preview(row.key)}</td>
          <td data-title="Value" class="mono clip">${row.state && html`<span class="badge">${row.state}</span> `}${preview(row.value)}</td>
          <td data-title="Size" class="number">${bytes(row.bytes)}</td>
        </tr>
        ${open && html`<tr key=${`${row.id} open`} class="below"><td colspan="6"><${Opened} topic=${topic} row=${row} query=${query} /></td></tr>`}`;
      })}
    </tbody>
  </table></div>`;
}

function recordPath(topic, row, query) {
  return path`/topics/${topic}/${row.partition}/${row.offset}` + (query.isolation ? `?isolation=${query.isolation}` : "");
}

function Opened({ topic, row, query }) {
  return html`<div class="record">
    ${[["Key", row.key], ["Value", row.value]].map(([title, view]) => html`<section key=${title}>
      <h3>${title} <span class="faint">${view.format}${view.bytes === null ? "" : `, ${bytes(view.bytes)}`}</span></h3>
      <${Reason} view=${view} />
      ${view.bytes !== null && html`<pre tabindex="0" aria-label=${title}>${view.text}</pre>`}
      ${view.cut && html`<p class="hint">This is the beginning. <${Link} href=${recordPath(topic, row, query)}>The whole ${title.toLowerCase()}</${Link}></p>`}
    </section>`)}
    ${row.headers.length > 0 && html`<section><h3>Headers</h3>
      <dl class="headers">${row.headers.map((header, at) => html`<dt key=${`${at} name`}>${header.name}</dt><dd key=${at}>${preview(header.value)}</dd>`)}</dl></section>`}
    <p class="faint">${row.timestamp_kind === "append" ? "time of the log" : "time of the producer"}, leader epoch ${row.leader_epoch ?? "unknown"}</p>
    <${Copies} topic=${topic} row=${row} isolation=${query.isolation} />
  </div>`;
}

function Nothing({ topic, data, query }) {
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
