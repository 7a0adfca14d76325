import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Link, go } from "../router.js";
import { Confirm } from "../parts/confirm.js";
import { useMe } from "../parts/me.js";
import { List } from "../parts/table.js";
import { count } from "../parts/format.js";

const COLUMNS = [
  { key: "topic", title: "Topic", sort: true, show: (row) => html`<${Link} href=${path`/topics/${row.topic}`}>${row.topic}</${Link}>` },
  { key: "partitions", title: "Partitions", sort: true, numeric: true, show: (row) => count(row.partitions) },
  { key: "records", title: "Records", numeric: true, show: (row) => count(row.records), note: "Offsets between the first and the last; compaction leaves gaps." },
];

export default function Topics({ query }) {
  const me = useMe();
  const [asked, setAsked] = useState(false);
  return html`<h1>Topics</h1>
    <${List} path="/topics" query=${query} columns=${COLUMNS} search="Name of a topic" name="topic" rowKey="topic"
      hiddenNote="names that begin with _"
      filters=${() => !me.read_only && html`<button type="button" class="primary" onClick=${() => setAsked(true)}>New topic…</button>`}
      empty=${html`There is no topic yet. Send the first record: <code>echo hello | kafscale produce greetings</code>`} />
    ${asked && html`<${NewTopic} close=${() => setAsked(false)} />`}`;
}

const DAY_MS = 86_400_000;

function NewTopic({ close }) {
  const act = async ({ topic, partitions, days, policy, more }) => {
    const configs = { "cleanup.policy": policy };
    if (days !== "") configs["retention.ms"] = String(Math.round(Number(days) * DAY_MS));
    for (const line of more.split("\n").filter((each) => each.trim())) {
      const [key, ...value] = line.split("=");
      configs[key.trim()] = value.join("=").trim();
    }
    await change("POST", "/topics", { topic, partitions: partitions === "" ? null : Number(partitions), configs });
    return { topic };
  };
  return html`<${Confirm} mild title="New topic" word="Create topic" close=${close} act=${act} done=${({ topic }) => go(path`/topics/${topic}`)}>
    <label>Name <input name="topic" required maxlength="249" pattern="[A-Za-z0-9._\\-]+" autocomplete="off" autofocus /></label>
    <label>Partitions; empty is the cluster's default <input name="partitions" type="number" min="1" /></label>
    <label>Keep records for days; empty is the cluster's default <input name="days" type="number" min="0" step="any" /></label>
    <label>When they are older <select name="policy"><option value="delete">delete them</option><option value="compact">keep the newest of each key (compact)</option><option value="compact,delete">compact, and delete</option></select></label>
    <details><summary>Other configs</summary><label>key=value on each line <textarea name="more" rows="3"></textarea></label></details>
  </${Confirm}>`;
}
