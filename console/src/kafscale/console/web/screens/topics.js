import { html } from "../html.js";
import { path } from "../api.js";
import { Link } from "../router.js";
import { List } from "../parts/table.js";
import { count } from "../parts/format.js";

const COLUMNS = [
  { key: "topic", title: "Topic", sort: true, show: (row) => html`<${Link} href=${path`/topics/${row.topic}`}>${row.topic}</${Link}>` },
  { key: "partitions", title: "Partitions", sort: true, numeric: true, show: (row) => count(row.partitions) },
  { key: "records", title: "Records", numeric: true, show: (row) => count(row.records), note: "Offsets between the first and the last; compaction leaves gaps." },
];

export default function Topics({ query }) {
  return html`<h1>Topics</h1>
    <${List} path="/topics" query=${query} columns=${COLUMNS} search="Name of a topic" name="topic" rowKey="topic"
      hiddenNote="names that begin with _"
      empty=${html`There is no topic yet. Send the first record: <code>echo hello | kafscale produce greetings</code>`} />`;
}
