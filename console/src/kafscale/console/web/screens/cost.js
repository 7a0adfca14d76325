// What topics cost, measured now.
import { html, useEffect } from "../html.js";
import { path } from "../api.js";
import { Link, setQuery } from "../router.js";
import { Failure } from "../parts/failure.js";
import { bytes, count, counted } from "../parts/format.js";
import { useLines } from "../parts/lines.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { key: "topic", title: "Topic", show: (row) => (row.topic === null ? html`<span class="faint">topics that you may not see</span>` : html`<${Link} href=${path`/topics/${row.topic}`}>${row.topic}</${Link}>`) },
  { key: "usd", title: "Per month", numeric: true, show: (row) => html`<strong>${dollars(row.usd)}</strong>` },
  { key: "put_usd", title: "PUTs", numeric: true, show: (row) => dollars(row.put_usd), note: "Of a month at this rate." },
  { key: "get_usd", title: "GETs", numeric: true, show: (row) => dollars(row.get_usd), note: "Of a month at this rate." },
  { key: "store_usd", title: "Storage", numeric: true, show: (row) => dollars(row.store_usd) },
  { key: "puts", title: "PUTs/s", numeric: true, show: (row) => rate(row.puts) },
  { key: "gets", title: "GETs/s", numeric: true, show: (row) => rate(row.gets) },
  { key: "bytes", title: "Stored", numeric: true, show: (row) => bytes(row.bytes) },
];
const SHOWN = 100;

export default function Cost({ query }) {
  const { data, error, busy, run } = useLines();
  const seconds = query.seconds || "10";
  const measure = () => run("/cost", { values: { seconds } });
  useEffect(() => void measure(), [seconds]);
  const { cost } = data;
  return html`<h1>Cost</h1>
    <div class="tools">
      <label>Count requests for <select value=${seconds} onChange=${(event) => setQuery({ seconds: event.target.value })}>
        ${["5", "10", "30", "45"].map((each) => html`<option key=${each} value=${each}>${each} s</option>`)}</select></label>
      <button type="button" onClick=${measure} disabled=${busy}>Measure again</button>
      <span role="status">${busy ? `Counting requests for ${seconds} s…` : ""}</span>
    </div>
    ${error && html`<${Failure} error=${error} retry=${measure} />`}
    ${cost && html`
      <div class="tiles">
        <div class="tile"><span class="title">All topics</span><strong>${dollars(cost.total.usd)}</strong><span class="more">per month at this rate</span></div>
        <div class="tile"><span class="title">Requests</span><strong>${dollars(cost.total.put_usd + (cost.total.get_usd ?? 0))}</strong><span class="more">${rate(cost.total.puts)} PUTs/s, ${rate(cost.total.gets)} GETs/s</span></div>
        <div class="tile"><span class="title">Storage</span><strong>${dollars(cost.total.store_usd)}</strong><span class="more">${bytes(cost.total.bytes)}</span></div>
      </div>
      ${cost.silent > 0 && html`<p class="hint warn-text">Without an answer: ${counted(cost.silent, "fetch or produce instance")}. So the GETs are not known.</p>`}
      ${cost.items.length
        ? html`<${Table} caption=${cost.items.length > SHOWN ? `The ${SHOWN} dearest of ${count(cost.items.length)} topics` : `Counted for ${cost.over_s.toFixed(1)} s`} rows=${cost.items.slice(0, SHOWN)} columns=${COLUMNS} rowKey="topic" />`
        : html`<p class="hint">There is no topic yet. Send the first record: <code>echo hello | kafscale produce greetings</code></p>`}`}
    <h2>How it is counted</h2>
    <ul class="hint">
      <li>PUTs: the changes of all logs in this time name the objects that were written. The PUT of a bundle is divided among its topics by the bytes of their records.</li>
      <li>GETs: the services count them for all topics together. They are divided by the bytes that each topic's readers got; while nobody reads, as the PUTs are. This is an estimate: caches serve some topics more often than others.</li>
      <li>Storage: the bytes of the logs. Bundles that are settled and not yet deleted are not in it.</li>
      <li>Prices are those of S3 Standard in us-east-1: $5 for a million PUTs, $0.40 for a million GETs, $23 for a TB and month. A month is 30 days at this rate, so a short look at a busy minute is not a bill.</li>
    </ul>`;
}

function dollars(amount) {
  if (amount === null || amount === undefined) return "–";
  return amount > 0 && amount < 0.01 ? "< $0.01" : `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
}

function rate(number) {
  if (number === null || number === undefined) return "–";
  return number > 0 && number < 0.1 ? "< 0.1" : number.toLocaleString("en-US", { maximumFractionDigits: 1 });
}
