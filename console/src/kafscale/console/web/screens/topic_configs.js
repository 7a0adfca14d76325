import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Confirm } from "../parts/confirm.js";
import { Loaded } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { Table } from "../parts/table.js";
import { configValue } from "../parts/format.js";

const COLUMNS = [
  { key: "key", title: "Config", show: (row) => html`<code>${row.key}</code>` },
  { key: "value", title: "Value", show: (row) => configValue(row.key, row.value) },
  { key: "source", title: "Set by", show: (row) => (row.source === "topic" ? html`<strong>topic</strong>` : row.source) },
];

export default function Configs({ topic }) {
  return html`<${Loaded} path=${path`/topics/${topic}/configs`}
    show=${(found, reload) => html`<${Shown} topic=${topic} items=${found.items} reload=${reload} />`} />`;
}

function Shown({ topic, items, reload }) {
  const me = useMe();
  const [row, setRow] = useState(null);
  const alter = (value) => change("PATCH", path`/topics/${topic}/configs`, { configs: { [row.key]: value } });
  const actions = { key: "actions", title: "Change", show: (each) => !each.read_only && html`<button type="button" class="quiet" aria-label=${`Change ${each.key}`} onClick=${() => setRow(each)}>Change…</button>` };
  return html`<${Table} caption=${`Configs of ${topic}`} rows=${items} columns=${me.read_only ? COLUMNS : [...COLUMNS, actions]} rowKey="key" />
    ${row && html`<${Confirm} mild title=${row.key} word="Save" close=${() => setRow(null)} done=${reload} act=${({ value, unset }) => alter(unset === "on" ? null : value)}>
      <label>Value <input name="value" defaultValue=${row.value ?? ""} autocomplete="off" autofocus /></label>
      ${row.source === "topic" && html`<label class="line"><input type="checkbox" name="unset" /> back to the default</label>`}
      ${row.key.startsWith("retention.") && html`<p class="hint">A lower value deletes records soon. Look first at who has not read them: <code>kafscale retention what-if</code></p>`}
    </${Confirm}>`}`;
}
