// One group: its members, partitions and history, what it has not committed, and what can be done with it.
import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Link, go } from "../router.js";
import { Confirm } from "../parts/confirm.js";
import { count, duration, many, whenDeleted } from "../parts/format.js";
import { DataLoss, Eta, Status } from "../parts/group_status.js";
import { Chart, Spark } from "../parts/line.js";
import { Loaded } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { useSettings } from "../parts/settings.js";
import { Table } from "../parts/table.js";
import { AsOf, reportEvery } from "./groups.js";

const SHOWN = 200;

export default function Group({ params }) {
  const me = useMe();
  return html`
    <p class="crumbs"><${Link} href="/groups">Groups</${Link}></p>
    <h1>${params.group}</h1>
    <${Loaded} path=${path`/groups/${params.group}`} every=${me.direct ? reportEvery : undefined}
      show=${(data, reload) => html`<${Shown} name=${params.group} data=${data} reload=${reload} />`} />`;
}

function Shown({ name, data, reload }) {
  const me = useMe();
  const { utc } = useSettings();
  const { group, partitions } = data;
  return html`
    <${AsOf} data=${data} />
    <div class="tiles">
      <div class="tile"><span class="title">${group.state} ${group.type}</span><strong><${Status} row=${group} /></strong><span class="more">${members(group, data.empty)}</span></div>
      <div class="tile"><span class="title">Unread</span><strong>${count(group.records ?? sum(partitions, "records"))}</strong><span class="more">${stable(group)}</span></div>
      ${me.direct && html`
        <div class="tile"><span class="title">Time behind</span><strong>${duration(group.time_ms)}</strong><span class="more">ETA: <${Eta} row=${group} /></span></div>
        <div class="tile"><span class="title">Data loss</span><strong><${DataLoss} row=${group} /></strong><span class="more">${group.at_risk ? `${many(group.at_risk, "partition")} at risk` : "no partition at risk"}</span></div>`}
    </div>
    <${Uncommitted} group=${group} partitions=${partitions} />
    ${me.direct && html`<${Chart} title="Unread records" history=${data.history} utc=${utc} />`}
    <div class="tools">
      <${Link} class="button" href=${path`/groups/${name}/reset`}>Reset offsets…</${Link}>
      ${!me.read_only && html`<${Actions} name=${name} data=${data} reload=${reload} />`}
    </div>
    <h2>Members</h2>
    <${Members} partitions=${partitions} />
    <h2>Partitions</h2>
    <${Partitions} partitions=${partitions} direct=${me.direct} />`;
}

const sum = (rows, key) => rows.reduce((total, row) => total + (row[key] ?? 0), 0);

function members(group, empty) {
  if (empty) return "no members";
  if (group.members === null || group.members === undefined) return group.protocol;
  return `${many(group.members, "member")}${group.unowned ? `, ${many(group.unowned, "partition")} without one` : ""}`;
}

function stable(group) {
  if (group.stable_records === null || group.stable_records === undefined || group.stable_records === group.records) return "records";
  return `${count(group.stable_records)} below the last stable offset`;
}

function Uncommitted({ group, partitions }) {
  const where = partitions.filter((row) => row.committed === null);
  if (!where.length) return null;
  const names = where.slice(0, 5).map((row) => `${row.topic}/${row.partition}`).join(", ");
  const all = where.length === partitions.length;
  return html`<p class="note">The group has committed no offset ${all ? "yet" : html`in ${count(where.length)} of ${count(partitions.length)} partitions (${names}${where.length > 5 && ", …"})`}.
    Nobody knows where it begins there: its consumers decide (<code>auto.offset.reset</code>). ${many(sum(where, "records"), "record")} ${sum(where, "records") === 1 ? "is" : "are"} stored there${(group.uncommitted_expires_in_ms ?? null) === null ? "" : `; retention deletes the first of them ${whenDeleted(group.uncommitted_expires_in_ms)}`}.</p>`;
}

function Members({ partitions }) {
  const byMember = new Map();
  for (const row of partitions) {
    if (row.member === null) continue;
    const found = byMember.get(row.member) ?? { member: row.member, client: row.client, host: row.host, partitions: 0, records: 0, time_ms: null };
    found.partitions += 1;
    found.records += row.records ?? 0;
    if (row.time_ms !== null && row.committed !== null) found.time_ms = Math.max(found.time_ms ?? 0, row.time_ms);
    byMember.set(row.member, found);
  }
  if (!byMember.size) return html`<p class="hint">No member reads a partition now.</p>`;
  const rows = [...byMember.values()].sort((a, b) => (a.host ?? "").localeCompare(b.host ?? "") || (a.client ?? "").localeCompare(b.client ?? ""));
  return html`<${Table} caption=${`${count(rows.length)} that read partitions`} rows=${rows} rowKey="member" columns=${[
    { key: "client", title: "Client", show: (row) => html`<span title=${row.member}>${row.client}</span>` },
    { key: "host", title: "Host" },
    { key: "partitions", title: "Partitions", numeric: true, show: (row) => count(row.partitions) },
    { key: "records", title: "Unread", numeric: true, show: (row) => count(row.records) },
    { key: "time_ms", title: "Time behind", numeric: true, show: (row) => duration(row.time_ms) },
  ]} />`;
}

const OF_KAFKA = [
  { key: "place", title: "Partition", show: (row) => html`<span><${Link} href=${path`/topics/${row.topic}`}>${row.topic}</${Link}>/${row.partition}</span>` },
  { key: "committed", title: "Committed", numeric: true, show: (row) => count(row.committed) },
  { key: "stable_end", title: "Stable end", numeric: true, show: (row) => count(row.stable_end), note: "The last stable offset: a read_committed consumer reads below it." },
  { key: "log_end", title: "End", numeric: true, show: (row) => count(row.log_end) },
  { key: "records", title: "Unread", numeric: true, show: (row) => html`<span title=${`${count(row.stable_records)} below the stable end`}>${count(row.records)}</span>` },
];
const OF_REPORT = [
  { key: "status", title: "Status", show: (row) => html`<${Status} row=${row} />` },
  ...OF_KAFKA,
  { key: "time_ms", title: "Time behind", numeric: true, show: (row) => duration(row.time_ms) },
  { key: "line", title: "Trend", numeric: true, show: (row) => html`<${Spark} line=${row.line} />` },
  { key: "eta_ms", title: "ETA", numeric: true, show: (row) => html`<${Eta} row=${row} />` },
  { key: "expires_in_ms", title: "Data loss", numeric: true, show: (row) => html`<${DataLoss} row=${row} />` },
];

function Partitions({ partitions, direct }) {
  const [all, setAll] = useState(false);
  if (!partitions.length) return html`<p class="hint">The group has no offsets, and no member that reads a topic.</p>`;
  const order = (row) => [row.lost ?? 0, row.at_risk ? 1 : 0, row.committed === null ? -1 : row.time_ms ?? 0, row.records ?? 0];
  const worst = partitions.map((row) => [row, order(row)]).sort(([, a], [, b]) => b.map((value, at) => value - a[at]).find((step) => step) ?? 0);
  const rows = worst.slice(0, all ? undefined : SHOWN).map(([row]) => ({ ...row, place: `${row.topic}/${row.partition}` }));
  return html`<${Table} caption=${`${many(partitions.length, "partition")}, worst first`} rows=${rows} rowKey="place" columns=${direct ? OF_REPORT : OF_KAFKA} />
    ${rows.length < partitions.length && html`<p><button type="button" onClick=${() => setAll(true)}>Show all ${count(partitions.length)}</button></p>`}`;
}

/** What removes something. A group with members is not touched: the coordinator would refuse it. */
function Actions({ name, data, reload }) {
  const [asked, setAsked] = useState(null);
  const committed = data.partitions.filter((row) => row.committed !== null);
  const byTopic = Map.groupBy(committed, (row) => row.topic);
  const why = data.empty ? undefined : "The group has members. Stop its consumers first.";
  return html`
    <button type="button" disabled=${!committed.length} onClick=${() => setAsked("offsets")}>Delete offsets…</button>
    <button type="button" class="danger" disabled=${!data.empty} title=${why} onClick=${() => setAsked("group")}>Delete group…</button>
    ${why && html`<span class="hint">${why}</span>`}
    ${asked === "group" && html`<${Confirm} title=${`Delete group ${name}`} word="Delete group" close=${() => setAsked(null)}
      act=${() => change("DELETE", path`/groups/${name}`)} done=${() => go("/groups")}>
      <p>With it goes ${many(committed.length, "committed offset")}. Its consumers then start as those of a new group.</p>
    </${Confirm}>`}
    ${asked === "offsets" && html`<${DeleteOffsets} name=${name} byTopic=${byTopic} close=${() => setAsked(null)} reload=${reload} />`}`;
}

function DeleteOffsets({ name, byTopic, close, reload }) {
  const [topic, setTopic] = useState([...byTopic.keys()][0]);
  const rows = byTopic.get(topic) ?? [];
  const act = () => change("DELETE", path`/groups/${name}/offsets`, { places: rows.map((row) => [row.topic, row.partition]) });
  return html`<${Confirm} title="Delete offsets of a topic" word=${`Delete ${many(rows.length, "offset")}`} close=${close} act=${act} done=${reload}>
    <label>Topic <select value=${topic} onChange=${(event) => setTopic(event.target.value)}>${[...byTopic.keys()].map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
    <p>The group then has no position in ${many(rows.length, "partition")} of ${topic}: ${rows.slice(0, 5).map((row) => `${row.partition} at ${count(row.committed)}`).join(", ")}${rows.length > 5 && ", …"}.
      Its consumers begin there as those of a new group. This is refused while members read the topic.</p>
  </${Confirm}>`;
}
