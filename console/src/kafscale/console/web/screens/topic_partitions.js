import { html } from "../html.js";
import { path } from "../api.js";
import { Loaded } from "../parts/load.js";
import { Table } from "../parts/table.js";
import { count } from "../parts/format.js";

const COLUMNS = [
  { key: "partition", title: "Partition", numeric: true },
  { key: "start", title: "First offset", numeric: true, show: (row) => count(row.start) },
  { key: "end", title: "End", numeric: true, show: (row) => count(row.end) },
  { key: "records", title: "Records", numeric: true, show: (row) => count(row.end - row.start) },
  { key: "leader", title: "Leader", numeric: true, show: (row) => row.leader ?? "none" },
  { key: "leader_epoch", title: "Leader epoch", numeric: true, show: (row) => row.leader_epoch ?? "unknown" },
];

export default function Partitions({ topic }) {
  return html`<${Loaded} path=${path`/topics/${topic}`}
    show=${(found) => html`<${Table} caption=${`Partitions of ${topic}`} rows=${found.partitions} columns=${COLUMNS} rowKey="partition" />`} />`;
}
