// Checks topics for damage: what `kafscale fsck` does.
import { html, useState } from "../html.js";
import { Failure } from "./failure.js";
import { bytes, count, counted } from "./format.js";
import { useLines } from "./lines.js";
import { Table } from "./table.js";

const COLUMNS = [{ key: "where", title: "Where", show: (row) => html`<code>${row.where}</code>` }, { key: "what", title: "What" }];

export function Damage({ topics }) {
  const [chosen, setChosen] = useState([]);
  const { data, error, busy, stopped, run, stop } = useLines();
  const pick = (event) => setChosen([...event.target.selectedOptions].map((option) => option.value));
  const check = () => run("/damage", { body: chosen.length ? { topics: chosen } : {} });
  return html`<h2>Damage</h2>
    <p class="hint">A check reads every object of the topics and compares it with etcd. It changes nothing. Leaving this page ends it.</p>
    <div class="tools">
      <label>Topics <select multiple size="4" onChange=${pick}>${topics.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}</select></label>
      <button type="button" class="primary" disabled=${busy} onClick=${check}>${chosen.length ? `Check ${chosen.length === 1 ? chosen[0] : `${count(chosen.length)} topics`}` : "Check everything"}</button>
      <button type="button" disabled=${!busy} onClick=${stop}>Stop</button>
      <span role="status">${said(data, busy, stopped)}</span>
    </div>
    ${error && html`<${Failure} error=${error} />`}
    ${data.problems?.length > 0 && html`<${Table} caption=${counted(data.end?.problems ?? data.problems.length, "problem")} rows=${data.problems.map((row, at) => ({ ...row, at }))} columns=${COLUMNS} rowKey="at" />
      <p class="hint">What each kind means, and what readers see of it, is in <code>docs/protocol/damage.md</code>.</p>`}
    ${data.end && html`<p class="hint">Read ${counted(data.end.segments, "segment")} with ${counted(data.end.records, "record")}, ${bytes(data.end.bytes)}, of ${counted(data.end.partitions, "partition")}.
      ${data.end.orphans > 0 && ` Named by nothing: ${counted(data.end.orphans, "object")} (legal: upkeep collects them).`}
      ${data.end.deleted > 0 && ` Below a log start: ${counted(data.end.deleted, "segment")} (legal), ${count(data.end.deleted_stored)} of them still stored.`}
      ${!data.end.all && " Objects that belong to no topic were left out."}</p>`}
    ${data.orphans?.length > 0 && html`<details><summary>Objects that nothing names</summary><ul class="plain">${data.orphans.map((key) => html`<li key=${key}><code>${key}</code></li>`)}</ul></details>`}`;
}

function said(data, busy, stopped) {
  if (busy) return data.at ? `Checking ${data.at}${data.total ? `: ${count(data.done)} of ${count(data.total)}` : ""}…` : "Starting…";
  if (stopped) return "Stopped.";
  if (!data.end) return "";
  return data.end.clean ? html`<span class="good-text">Clean: etcd and the store agree.</span>` : html`<strong class="bad-text">${counted(data.end.problems, "problem")}.</strong>`;
}
