// The groups that read a topic, worst first.
import { html } from "../html.js";
import { useMe } from "../parts/me.js";
import { List } from "../parts/table.js";
import { AsOf, COLUMNS, reportEvery } from "./groups.js";

export default function TopicGroups({ topic, query }) {
  if (!useMe().direct) return html`<p class="hint">Which groups read a topic is only known to a console that reads etcd and the store.</p>`;
  return html`<${List} path="/groups" query=${query} values=${{ topic }} columns=${COLUMNS} search="Name of a group" name="-risk" rowKey="group"
    every=${reportEvery} about=${(data) => html`<${AsOf} data=${data} />`} empty=${html`No group reads this topic. Read it: <code>kafscale consume ${topic} --group NAME</code>`} />`;
}
