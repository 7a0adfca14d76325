import { html } from "../html.js";
import { path } from "../api.js";
import { Loaded } from "../parts/load.js";
import { Table } from "../parts/table.js";
import { configValue } from "../parts/format.js";

const COLUMNS = [
  { key: "key", title: "Config", show: (row) => html`<code>${row.key}</code>` },
  { key: "value", title: "Value", show: (row) => configValue(row.key, row.value) },
  { key: "source", title: "Set by", show: (row) => (row.source === "topic" ? html`<strong>topic</strong>` : row.source) },
];

export default function Configs({ topic }) {
  return html`<${Loaded} path=${path`/topics/${topic}/configs`}
    show=${(found) => html`<${Table} caption=${`Configs of ${topic}`} rows=${found.items} columns=${COLUMNS} rowKey="key" />`} />`;
}
