// What changes a topic for good: more partitions, fewer records, its end. What goes is shown before.
import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { go } from "../router.js";
import { Confirm } from "../parts/confirm.js";
import { Failure } from "../parts/failure.js";
import { count, many } from "../parts/format.js";
import { Loaded } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { Table } from "../parts/table.js";

export default function Change({ topic }) {
  const me = useMe();
  if (me.read_only) return html`<p class="hint">This console is read-only.</p>`;
  return html`
    <h2>Add partitions</h2><${Partitions} topic=${topic} />
    <h2>Delete records</h2><${DeleteRecords} topic=${topic} />
    <h2>Delete the topic</h2><${DeleteTopic} topic=${topic} />`;
}

function Partitions({ topic }) {
  return html`<${Loaded} path=${path`/topics/${topic}`} show=${(found, reload) => html`<${MorePartitions} topic=${topic} now=${found.partitions.length} reload=${reload} />`} />`;
}

function MorePartitions({ topic, now, reload }) {
  const [total, setTotal] = useState("");
  const [asked, setAsked] = useState(false);
  const submit = (event) => {
    event.preventDefault();
    setAsked(true);
  };
  return html`<form class="tools" onSubmit=${submit}>
      <label>It has ${count(now)}. New number <input type="number" required min=${now + 1} value=${total} onInput=${(event) => setTotal(event.target.value)} /></label>
      <button>Add partitions…</button>
    </form>
    ${asked && html`<${Confirm} title=${`Add ${many(total - now, "partition")}`} word="Add partitions" close=${() => setAsked(false)} done=${reload} act=${() => change("POST", path`/topics/${topic}/partitions`, { total: Number(total) })}>
      <p>Partitions cannot be removed again. Records of a key that come later may go to another partition than those before.</p></${Confirm}>`}`;
}

const RECORDS = [
  { key: "partition", title: "Partition", numeric: true },
  { key: "start", title: "First offset", numeric: true, show: (row) => count(row.start) },
  { key: "start_after", title: "Then", numeric: true, show: (row) => count(row.start_after) },
  { key: "records", title: "Deleted", numeric: true, show: (row) => count(row.records) },
];

function DeleteRecords({ topic }) {
  const [shown, setShown] = useState(null);
  const [failure, setFailure] = useState(null);
  const [asked, setAsked] = useState(false);
  const preview = async (event) => {
    event.preventDefault();
    setFailure(null);
    setShown(null);
    try {
      setShown(await change("POST", path`/topics/${topic}/delete-records/preview`, { before: new FormData(event.target).get("before") }));
    } catch (problem) {
      setFailure(problem);
    }
  };
  const send = () => change("POST", path`/topics/${topic}/delete-records`, { starts: shown.rows.map((row) => [row.partition, row.start_after]) });
  return html`<form class="tools" onSubmit=${preview}>
      <label>Before <input name="before" required placeholder="end, 1000, -1d, 2026-01-31T08:00" onInput=${() => setShown(null)} /></label>
      <button>Preview</button><span class="hint">An offset, an age, a time (UTC without a zone), or <code>end</code>.</span>
    </form>
    ${failure && html`<${Failure} error=${failure} />`}
    ${shown && (shown.rows.length ? html`
      <${Facts} facts=${shown.facts} losses=${shown.losses} />
      <${Table} wide caption="Partitions that lose records" rows=${shown.rows} rowKey="partition" columns=${RECORDS} />
      <div class="tools"><button type="button" class="danger" onClick=${() => setAsked(true)}>Delete ${shown.what}…</button></div>`
      : html`<p class="note">No partition has a record before that.</p>`)}
    ${asked && html`<${Confirm} title="Delete records" word="Delete records" close=${() => setAsked(false)} act=${send} done=${() => setShown(null)}>
      <p>${shown.what}. This cannot be undone.</p></${Confirm}>`}`;
}

const Facts = ({ facts, losses }) => html`<ul class=${losses.length ? "note bad-text" : "note"}>${facts.map((fact) => html`<li key=${fact}>${fact}</li>`)}</ul>`;

function DeleteTopic({ topic }) {
  const [asked, setAsked] = useState(false);
  const [typed, setTyped] = useState("");
  return html`<button type="button" class="danger" onClick=${() => setAsked(true)}>Delete ${topic}…</button>
    ${asked && html`<${Confirm} title=${`Delete ${topic}`} word="Delete topic" disabled=${typed !== topic} close=${() => setAsked(false)} act=${() => change("DELETE", path`/topics/${topic}`)} done=${() => go("/topics")}>
      <${Loaded} path=${path`/topics/${topic}/deletion`} show=${(found) => html`<${Facts} facts=${found.facts} losses=${found.losses} />`} />
      <label>This cannot be undone. Type the topic's name <input autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} autofocus /></label>
    </${Confirm}>`}`;
}
