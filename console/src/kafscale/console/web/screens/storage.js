// What is stored: topics, segments, bundles, etcd, upkeep; and whether it is whole.
import { html, useEffect } from "../html.js";
import { path } from "../api.js";
import { Link } from "../router.js";
import { Damage } from "../parts/damage.js";
import { Failure } from "../parts/failure.js";
import { ago, bytes, count, counted, time } from "../parts/format.js";
import { useLines } from "../parts/lines.js";
import { useSettings } from "../parts/settings.js";
import { Table } from "../parts/table.js";

const OTHERS = "topics that you may not see";
const SHOWN = 100;

export default function Storage() {
  const { data, error, busy, run } = useLines();
  const load = () => run("/storage");
  useEffect(() => void load(), []);
  return html`<h1>Storage</h1>
    <div class="tools"><button type="button" class="quiet" onClick=${load} disabled=${busy}>Refresh</button>
      <span role="status">${busy ? "Reading etcd and the store…" : ""}</span></div>
    ${error && html`<${Failure} error=${error} retry=${load} />`}
    ${data.topics && html`<${Tiles} data=${data} />`}
    ${data.topics && html`<${Topics} rows=${data.topics} unreadable=${data.unreadable} />`}
    ${data.sizes && html`<${Sizes} sizes=${data.sizes} />`}
    ${data.etcd && html`<${Etcd} etcd=${data.etcd} />`}
    ${data.upkeep && html`<${Upkeep} upkeep=${data.upkeep} />`}
    ${data.topics && html`<${Damage} topics=${data.topics.map((row) => row.topic).filter((name) => name !== null)} />`}`;
}

function Tiles({ data }) {
  const { topics, bundles, etcd } = data;
  const sum = (name) => topics.reduce((whole, row) => whole + row[name], 0);
  return html`<div class="tiles">
    <div class="tile"><span class="title">Records</span><strong>${bytes(sum("bytes"))}</strong><span class="more">${counted(sum("segments"), "segment")} of ${counted(sum("partitions"), "partition")}</span></div>
    ${bundles && html`<div class="tile"><span class="title">Bundles</span><strong>${bytes(bundles.bytes)}</strong>
      <span class="more">${counted(bundles.bundles, "object")}, ${share(bundles.bytes - bundles.live_bytes, bundles.bytes)} no longer needed</span></div>
    <div class="tile"><span class="title">Not settled into segments</span><strong>${bytes(bundles.live_bytes)}</strong>
      <span class="more">${bundles.slices ? `${counted(bundles.slices, "slice")}, the oldest of ${ago(bundles.oldest_ms, bundles.now_ms)}` : "everything is settled"}</span></div>`}
    ${etcd && html`<div class="tile"><span class="title">etcd</span><strong>${etcd.used_bytes === null ? "unknown" : bytes(etcd.used_bytes)}</strong>
      <span class="more">${etcd.quota_bytes ? `${share(etcd.used_bytes, etcd.quota_bytes)} of its quota of ${bytes(etcd.quota_bytes)}` : "it does not say its quota"}</span></div>`}
  </div>`;
}

function share(part, whole) {
  return whole > 0 ? `${((100 * Math.max(part, 0)) / whole).toFixed(part * 100 < whole * 10 ? 1 : 0)} %` : "0 %";
}

function Topics({ rows, unreadable }) {
  if (!rows.length) return html`<p class="hint">Nothing is stored yet. Send the first record: <code>echo hello | kafscale produce greetings</code></p>`;
  const most = Math.max(...rows.map((row) => row.bytes), 1);
  const columns = [
    { key: "topic", title: "Topic", show: (row) => (row.topic === null ? html`<span class="faint">${OTHERS}</span>` : html`<${Link} href=${path`/topics/${row.topic}`}>${row.topic}</${Link}>`) },
    { key: "bytes", title: "Bytes", numeric: true, show: (row) => html`<span title=${count(row.bytes)}>${bytes(row.bytes)}</span>` },
    { key: "bar", title: "Share", show: (row) => html`<meter min="0" max=${most} value=${row.bytes} aria-label=${`Share of ${row.topic ?? OTHERS}`}></meter>` },
    { key: "segments", title: "Segments", numeric: true, show: (row) => count(row.segments) },
    { key: "partitions", title: "Partitions", numeric: true, show: (row) => count(row.partitions), note: "Partitions that have been written." },
    { key: "slices", title: "Slices in bundles", numeric: true, show: (row) => `${count(row.slices)} (${bytes(row.slice_bytes)})`, note: "Of the segments: those that are not settled into objects of their own." },
  ];
  return html`<h2>Bytes by topic</h2>
    ${unreadable > 0 && html`<p class="hint warn-text">etcd has ${counted(unreadable, "value")} that cannot be read; check for damage below.</p>`}
    <${Table} caption=${rows.length > SHOWN ? `The ${SHOWN} largest of ${count(rows.length)}` : "Records as they are stored"} rows=${rows.slice(0, SHOWN)} columns=${columns} rowKey="topic" />`;
}

function Sizes({ sizes }) {
  const name = (row, at) => (row.below === null ? `${bytes(sizes.classes[at - 1].below)} and more` : at === 0 ? `below ${bytes(row.below)}` : `${bytes(sizes.classes[at - 1].below)} to ${bytes(row.below)}`);
  const rows = sizes.classes.map((row, at) => ({ ...row, name: name(row, at) }));
  if (!sizes.segments) return html`<h2>Segments by size</h2><p class="hint">All records are in bundles still. Their owners settle them into segments.</p>`;
  const columns = [
    { key: "name", title: "Size" },
    { key: "segments", title: "Segments", numeric: true, show: (row) => count(row.segments) },
    { key: "bytes", title: "Bytes", numeric: true, show: (row) => bytes(row.bytes) },
  ];
  return html`<h2>Segments by size</h2>
    <${Table} caption=${sizes.seen < sizes.segments ? `${count(sizes.seen)} of ${count(sizes.segments)} segments, as a sample` : "All segments that are objects of their own"} rows=${rows} columns=${columns} rowKey="name" />`;
}

function Etcd({ etcd }) {
  const columns = [
    { key: "family", title: "Keys" },
    { key: "keys", title: "Number", numeric: true, show: (row) => count(row.keys) },
    { key: "bytes", title: "Bytes", numeric: true, show: (row) => bytes(row.bytes) },
  ];
  const file = etcd.file_bytes === null ? "this etcd gives its size to root alone" : `version ${etcd.version}, file of ${bytes(etcd.file_bytes)}`;
  return html`<h2>etcd</h2><${Table} caption=${`Largest families of keys; ${file}`} rows=${etcd.families} columns=${columns} rowKey="family" />`;
}

function Upkeep({ upkeep }) {
  const { utc } = useSettings();
  const when = (ms) => (ms === null ? "unknown" : html`${time(ms, utc)} <span class="faint">${ago(ms)}</span>`);
  const columns = [
    { key: "job", title: "Job" },
    { key: "last_ms", title: "Last run", show: (row) => (row.last_ms === null ? "never" : when(row.last_ms)) },
    { key: "next_ms", title: "Next run", show: (row) => when(row.next_ms) },
    { key: "failures", title: "Failures", numeric: true, show: (row) => (row.failures ? html`<strong class="bad-text">${count(row.failures)}</strong>` : count(row.failures)), note: "Since the active instance started." },
    { key: "stalled", title: "Result", show: (row) => (row.stalled ? html`<span class="warn-text">no progress in ${counted(row.stalled, "run")}</span>` : "good") },
  ];
  return html`<h2>Upkeep</h2>
    ${!upkeep.answers && html`<p class="hint warn-text">No upkeep answers: nothing expires and nothing is compacted. Start one: <code>kafscale serve upkeep</code></p>`}
    <${Table} caption="Jobs in the background" rows=${upkeep.jobs} columns=${columns} rowKey="job" />`;
}
