// Search of a topic's records, newest first: start, stop, go on. The address has what is sought. Who comes back from a
// hit finds the answer as it was.
import { html, useEffect, useLayoutEffect, useState } from "../html.js";
import { path, query as queryOf } from "../api.js";
import { Link, scrollBack, setQuery } from "../router.js";
import { Failure } from "./failure.js";
import { count, counted, time } from "./format.js";
import { useLines } from "./lines.js";
import { useMe } from "./me.js";
import { State, preview, recordPath } from "./record.js";
import { Redrive } from "./redrive.js";
import { useSettings } from "./settings.js";
import { keep, useShelf } from "./shelf.js";

const HITS_MAX = 500; // that one request produces again; "Continue" may bring more
const HINT = { text: "part of a key or a value", where: "value ->> '$.country' = 'NL'" };

/** `query`: of the screen; it has `text` or `where`, and `partition`, `since`, `isolation`. */
export function Search({ topic, query }) {
  const { direct } = useMe();
  const [kind, setKind] = useState(query.where ? "where" : "text");
  const shelf = useShelf();
  const { data, error, busy, stopped, kept, run, stop, put } = useLines(take);
  const { utc } = useSettings();
  const sought = query.where || query.text || "";
  const { where, text, partition, since, isolation } = query;
  const asked = { where, text, partition, since, isolation };
  const name = nameOf(topic, asked);
  const start = (values, before) => run(path`/topics/${topic}/search`, { values, before, onState: (state) => keep(shelf, nameOf(topic, values), state) });
  useEffect(() => {
    if (!sought) return put();
    setKind(where ? "where" : "text"); // Back may lead from the one to the other
    const earlier = shelf.get(name);
    if (earlier?.data.cursor) put({ ...earlier, busy: false, stopped: earlier.busy, kept: true });
    else start(asked);
  }, [name]);
  useLayoutEffect(() => {
    if (kept) scrollBack();
  }, [kept, name]);
  const submit = (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const wanted = { text: "", where: "", [kind]: given.get("sought").trim(), since: given.get("since"), partition: given.get("partition"), isolation: given.get("isolation") ?? "" };
    const same = Object.entries(wanted).every(([name, value]) => (query[name] ?? "") === value);
    shelf.delete(nameOf(topic, wanted)); // who asks wants to know of now
    if (same) start(wanted);
    else setQuery(wanted);
  };
  const refused = error?.error === "bad_query"; // another try with the same condition ends the same
  const goOn = () => start({ ...asked, cursor: data.cursor }, { hits: data.hits });
  return html`<form class="tools" onSubmit=${submit} role="search">
      <label>Search by <select value=${kind} onChange=${(event) => setKind(event.target.value)}>
        <option value="text">text</option>${(direct || query.where) && html`<option value="where">SQL condition</option>`}</select></label>
      <input class="wide-input mono" name="sought" required aria-label=${kind === "text" ? "Text" : "SQL condition"} placeholder=${HINT[kind]} value=${sought} />
      <label>Since <select name="since" value=${query.since ?? ""}>
        <option value="">the beginning</option><option value="-15m">15 minutes ago</option><option value="-1h">an hour ago</option><option value="-1d">a day ago</option><option value="-7d">7 days ago</option></select></label>
      <label>Partition <input name="partition" class="short" inputmode="numeric" pattern="[0-9]*" placeholder="all" value=${query.partition ?? ""} /></label>
      <label><input type="checkbox" name="isolation" value="uncommitted" checked=${query.isolation === "uncommitted"} /> uncommitted</label>
      <button class="primary" disabled=${busy}>Search</button>
      <button type="button" disabled=${!busy} onClick=${stop}>Stop</button>
    </form>
    ${error && html`<${Failure} error=${error} />`}
    ${!refused && html`<p role="status">${said(data, busy, stopped)}
      ${!busy && data.cursor && data.end !== "end" && html` <button type="button" onClick=${goOn}>Continue</button>`}
      ${kept && html` <span class="hint">Found at ${time(data.began_ms, utc)}. "Search" looks again.</span>`}</p>`}
    ${!refused && data.records > 0 && html`<progress max=${data.records} value=${data.read} aria-label="Read"></progress>`}
    ${data.hits?.length > 0 && html`<${Hits} topic=${topic} hits=${data.hits} isolation=${isolation} />
      <${Redrive} topic=${topic} rows=${data.hits.slice(0, HITS_MAX)} isolation=${isolation} />`}
    ${direct
      ? html`<p class="hint">Newest segments first, partition by partition, from the segments in the object store: no broker works for it. A condition has the columns of <code>records</code>:
      key, value, key_text, value_text, headers, partition, "offset", timestamp. A field of JSON: <code>value ->> '$.country' = 'NL'</code>, as a number <code>(value ->> '$.total')::double > 100</code>.
      A record for which it fails (no JSON, for example) is no hit.</p>`
      : html`<p class="hint">Newest first, by a text only: this console does not read the object store (<code>--no-direct</code>), so a consumer reads the records from the brokers.
      It ends at 500 hits, 55 s or 256 MiB; "Continue" goes on there.</p>`}`;
}

/** `values`: of a search, without a cursor. */
function nameOf(topic, { where, text, partition, since, isolation }) {
  return path`/topics/${topic}/search` + queryOf({ where, text, partition, since, isolation });
}

function take(data, item) {
  if (item.hits) return { ...data, hits: [...(data.hits ?? []), ...item.hits] };
  return { began_ms: Date.now(), ...data, ...item };
}

function said(data, busy, stopped) {
  if (data.records === undefined) return busy ? "Starting…" : "";
  const found = data.hits?.length ?? 0;
  const read = `${counted(found, "hit")}; read ${count(data.read)} of ${count(data.records)} records`;
  if (busy) return `${read}…`;
  if (data.end === "end") return `${read}: all of them.`;
  if (data.end === "hits") return `${read}; ended at 500 hits.`;
  if (data.end === "bytes") return `${read}; one search reads 256 MiB at most.`;
  if (data.end === "time") return `${read}; the time of one search is over.`;
  return stopped ? `${read}; stopped.` : `${read}.`;
}

function Hits({ topic, hits, isolation }) {
  const { utc } = useSettings();
  return html`<div class="scroll"><table class="records">
    <caption>Hits</caption>
    <thead><tr><th scope="col">Time</th><th scope="col" class="number">Partition</th><th scope="col" class="number">Offset</th><th scope="col">Key</th><th scope="col">Value</th></tr></thead>
    <tbody>${hits.map((row) => html`<tr key=${row.id}>
      <td data-title="Time" class="time">${time(row.timestamp_ms, utc)}</td>
      <td data-title="Partition" class="number">${row.partition}</td>
      <td data-title="Offset" class="number"><${Link} href=${recordPath(topic, row, isolation)}>${row.offset}</${Link}></td>
      <td data-title="Key" class="mono clip">${preview(row.key)}</td>
      <td data-title="Value" class="mono clip"><${State} of=${row} />${preview(row.value)}</td></tr>`)}</tbody>
  </table></div>`;
}
