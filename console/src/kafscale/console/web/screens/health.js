// The services: what each says of itself. What `kafscale status` shows.
import { html, useEffect } from "../html.js";
import { Failure } from "../parts/failure.js";
import { bytes, count, counted, duration } from "../parts/format.js";
import { useLines } from "../parts/lines.js";
import { Table } from "../parts/table.js";

const COLUMNS = [
  { key: "service", title: "Service", show: (row) => `${row.service} ${row.node}` },
  { key: "health", title: "State", show: (row) => (row.health === "ready" ? html`<span class="good-text">ready</span>` : html`<strong class="bad-text">${row.health}</strong>`) },
  { key: "address", title: "Address", show: (row) => html`<span class="nowrap">${row.address}</span>` },
  { key: "version", title: "Version", show: (row) => html`<span class="nowrap">${row.version ?? "unknown"}</span>` },
  { key: "age_s", title: "Up", numeric: true, show: (row) => duration(row.age_s * 1000) },
  { key: "doing", title: "Doing", show: doing },
  { key: "loop_lag_s", title: "Loop lag", numeric: true, show: (row) => (row.loop_lag_s === null ? "–" : duration(row.loop_lag_s * 1000)), note: "The longest delay of its event loop since the last look." },
  { key: "memory_bytes", title: "Memory", numeric: true, show: (row) => bytes(row.memory_bytes) },
  { key: "metrics", title: "Metrics", show: (row) => html`<a class="nowrap" href=${row.metrics_url} rel="noreferrer">${row.metrics}</a>`, note: "In Prometheus' text form, on the network of the services." },
];

export default function Health() {
  const { data, error, busy, run } = useLines();
  const load = () => run("/health");
  useEffect(() => void load(), []);
  const { picture } = data;
  return html`<h1>Health</h1>
    <div class="tools"><button type="button" class="quiet" onClick=${load} disabled=${busy}>Refresh</button><span role="status">${busy ? "Asking all services…" : ""}</span></div>
    ${error && html`<${Failure} error=${error} retry=${load} />`}
    ${picture && html`
      <div class="tiles">
        <div class="tile"><span class="title">Clients</span><strong class=${picture.serves ? "good-text" : "bad-text"}>${picture.serves ? "are served" : "are not served"}</strong><span class="more">cluster ${picture.cluster_id ?? "without an id yet"}</span></div>
        <div class="tile"><span class="title">Instances</span><strong>${count(picture.instances.filter((row) => row.health === "ready").length)} of ${count(picture.instances.length)}</strong><span class="more">are ready</span></div>
        <div class="tile"><span class="title">Partitions</span><strong>${count(picture.partitions)}</strong><span class="more">${count(picture.partitions_owned)} have an owner; the others get one at their next request</span></div>
        <div class="tile"><span class="title">Transactions</span><strong>${count(picture.transactions)}</strong><span class="more">${picture.transactions ? `under way, the oldest for ${duration(picture.oldest_transaction_s * 1000)}` : "none is under way"}</span></div>
      </div>
      ${picture.warnings.map((warning) => html`<p key=${warning} class="failure">${warning}</p>`)}
      <h2>Services</h2>
      <${Table} caption=${`Rates over ${picture.rates_over_s} s; etcd ${picture.etcd_version ?? "of unknown version"} at ${picture.etcd.join(", ")}`} rows=${picture.instances.map((row) => ({ ...row, name: `${row.service} ${row.node}` }))} columns=${COLUMNS} rowKey="name" />
      <p class="hint">The names of all metrics are in <code>docs/metrics.md</code>; what each alert means and what to do is in <code>docs/operations.md</code>.</p>`}`;
}

function doing(row) {
  const parts = [];
  if (row.works !== null) parts.push(row.works ? "active" : "standby");
  if (row.owns !== null) parts.push(counted(row.owns, row.service === "coordinator" ? "slot" : "partition"));
  if (row.groups !== null) parts.push(counted(row.groups, "group"));
  if (row.connections !== null) parts.push(counted(row.connections, "connection"));
  if (row.bytes_per_s !== null) parts.push(`${row.records_per_s} records/s`, `${bytes(Math.round(row.bytes_per_s))}/s`);
  else if (row.requests_per_s !== null) parts.push(`${row.requests_per_s} requests/s`);
  return parts.join(", ");
}
