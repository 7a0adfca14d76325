// Transactions that are under way, and those that hang: open in a partition, and no coordinator would end them.
import { html, useState } from "../html.js";
import { change, get, path } from "../api.js";
import { setQuery } from "../router.js";
import { Confirm } from "../parts/confirm.js";
import { Failure } from "../parts/failure.js";
import { count, duration, many, time } from "../parts/format.js";
import { useMe } from "../parts/me.js";
import { useSettings } from "../parts/settings.js";
import { List, Table } from "../parts/table.js";

export default function Transactions({ query }) {
  const me = useMe();
  const { utc } = useSettings();
  const [asked, setAsked] = useState(null);
  const [turn, setTurn] = useState(0);
  const columns = [
    { key: "transactional_id", title: "Transactional id", sort: true },
    { key: "transaction_state", title: "State", sort: true, show: (row) => state(row) },
    { key: "started_ms", title: "Began", show: (row) => time(row.started_ms, utc) },
    { key: "duration_ms", title: "For", numeric: true, show: (row) => html`<span title=${`timeout: ${duration(row.timeout_ms)}`}>${duration(row.duration_ms)}</span>` },
    { key: "partitions", title: "Partitions", show: (row) => html`<span title=${row.partitions.join(", ")}>${row.partitions.length > 2 ? `${row.partitions.slice(0, 2).join(", ")} and ${count(row.partitions.length - 2)} more` : row.partitions.join(", ") || "–"}</span>` },
    { key: "producer_id", title: "Producer id", sort: true, numeric: true },
    ...(me.read_only ? [] : [{ key: "actions", title: "Change", show: (row) => row.transaction_state === "Ongoing" && html`<button type="button" class="quiet" aria-label=${`End ${row.transactional_id}`} onClick=${() => setAsked(row)}>End…</button>` }]),
  ];
  const open = query.open !== "0";
  const only = () => html`<label><input type="checkbox" checked=${open} onChange=${(event) => setQuery({ open: event.target.checked ? "" : "0", page: "" })} /> only those under way</label>`;
  return html`<h1>Transactions</h1>
    <${List} key=${turn} path="/transactions" query=${query} values=${{ open: open ? "1" : "" }} columns=${columns} search="Transactional id" name="transactional_id" rowKey="transactional_id" filters=${only}
      empty=${open ? "No transaction is under way." : "No producer has a transactional id."} />
    ${asked && html`<${Confirm} title=${`End the transaction of ${asked.transactional_id}`} word="Abort transaction" close=${() => setAsked(null)} done=${() => setTurn((now) => now + 1)}
      act=${() => change("POST", path`/transactions/${asked.transactional_id}/terminate`)}>
      <p>Its producer is fenced: it gets an error and must begin again. Its records in ${many(asked.partitions.length, "partition")} are aborted, so a read_committed consumer never sees them.</p></${Confirm}>`}
    <h2>Hanging transactions</h2>
    <${HangingOnes} utc=${utc} />`;
}

const state = (row) => row.transaction_state === "Ongoing" && row.duration_ms > row.timeout_ms
  ? html`<span class="warn-text">Ongoing, longer than its timeout</span>` : row.transaction_state;

function HangingOnes({ utc }) {
  const me = useMe();
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const [asked, setAsked] = useState(null);
  const look = async () => {
    setBusy(true);
    setFailure(null);
    try {
      setFound(await get("/transactions/hanging"));
    } catch (problem) {
      setFailure(problem);
    }
    setBusy(false);
  };
  const columns = [
    { key: "place", title: "Partition" },
    { key: "start_offset", title: "Begins at", numeric: true, show: (row) => count(row.start_offset) },
    { key: "last_timestamp", title: "Last record", show: (row) => time(row.last_timestamp, utc) },
    { key: "duration_min", title: "For", numeric: true, show: (row) => duration(row.duration_min * 60_000) },
    { key: "producer_id", title: "Producer id", numeric: true },
    ...(me.read_only ? [] : [{ key: "actions", title: "Change", show: (row) => html`<button type="button" class="quiet" aria-label=${`Abort in ${row.place}`} onClick=${() => setAsked(row)}>Abort…</button>` }]),
  ];
  return html`<p class="hint">One that hangs holds back every read_committed consumer of its partition. The search asks each partition that you may read.</p>
    <div class="tools"><button type="button" disabled=${busy} onClick=${look}>${busy ? "Looking…" : "Look for them"}</button></div>
    ${failure && html`<${Failure} error=${failure} />`}
    ${found && html`<div role="status">
      <p>${found.items.length ? "" : "No transaction hangs "}${found.items.length ? `${count(found.items.length)} found ` : ""}in ${count(found.topics)} topics${found.not_readable ? `; ${count(found.not_readable)} topics may not be read by this login` : ""}.</p>
      ${found.items.length > 0 && html`<${Table} caption="Hanging transactions" rows=${found.items.map((row) => ({ ...row, place: `${row.topic}/${row.partition}` }))} rowKey="place" columns=${columns} />`}
    </div>`}
    ${asked && html`<${Confirm} title=${`Abort in ${asked.place}`} word="Abort transaction" close=${() => setAsked(null)} done=${look}
      act=${() => change("POST", "/transactions/abort", { topic: asked.topic, partition: asked.partition, start_offset: asked.start_offset })}>
      <p>The records of producer ${asked.producer_id} from offset ${count(asked.start_offset)} on are aborted. This cannot be undone.</p></${Confirm}>`}`;
}
