import { html } from "../html.js";
import { Link } from "../router.js";
import { Loaded } from "../parts/load.js";
import { Table } from "../parts/table.js";
import { count } from "../parts/format.js";

export default function Overview() {
  return html`<h1>Overview</h1>
    <${Loaded} path="/overview" show=${(found) => html`
      <div class="tiles">
        <${Tile} href="/topics" title="Topics" value=${count(found.topics)} more=${`${count(found.partitions)} partitions`} />
        <${Tile} href="/groups" title="Consumer groups" value=${count(found.groups)} more=${`${count(found.groups_empty)} without members`} />
        <${Tile} title="Brokers" value=${count(found.brokers.length)} more=${`cluster ${found.cluster_id}`} />
      </div>
      ${found.topics === 0 && html`<p class="hint">There is no topic yet. Send the first record: <code>echo hello | kafscale produce greetings</code></p>`}
      <h2>Brokers</h2>
      <${Table} caption="Brokers" rows=${found.brokers} columns=${[{ key: "id", title: "Broker", numeric: true }, { key: "address", title: "Address" }]} />
    `} />`;
}

function Tile({ href, title, value, more }) {
  const inside = html`<span class="title">${title}</span><strong>${value}</strong><span class="more">${more}</span>`;
  return href ? html`<${Link} class="tile" href=${href}>${inside}</${Link}>` : html`<div class="tile">${inside}</div>`;
}
