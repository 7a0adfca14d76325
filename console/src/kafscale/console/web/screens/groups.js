// The lag report as a live table. It asks again every 15 s, and not while the tab is hidden.
import { html } from "../html.js";
import { path } from "../api.js";
import { Link, setQuery } from "../router.js";
import { count, duration, time } from "../parts/format.js";
import { DataLoss, Eta, Status } from "../parts/group_status.js";
import { Spark } from "../parts/line.js";
import { useMe } from "../parts/me.js";
import { useSettings } from "../parts/settings.js";
import { List } from "../parts/table.js";

const EVERY_MS = 15_000;
const SOON_MS = 1_000;
const CHIPS = [["risk", "at risk"], ["lost", "lost"], ["stopped", "stopped"], ["empty", "empty"], ["dead", "dead"]];
const NOTES = {
  risk: "It will not have read its records before retention deletes them.",
  lost: "Records were deleted before the group read them.",
  stopped: "Nothing was committed for longer than the last commits took.",
  empty: "It has no members.",
  dead: "No members, no commit within the hour, and unread records.",
};

export const reportEvery = (data) => (data?.making && !data.at_ms ? SOON_MS : EVERY_MS);

function trend(row) {
  const rate = row.trend_1h_per_s;
  const words = rate === null || rate === undefined ? "" : Math.abs(rate) < 0.005 ? "steady" : `${rate > 0 ? "+" : "−"}${Math.abs(rate).toPrecision(2)}/s`;
  return row.line || words ? html`<span class="trend"><${Spark} line=${row.line} /> ${words}</span>` : "–";
}

function topics(row) {
  const shown = row.topics.slice(0, 2).map((topic, at) => html`${at > 0 && ", "}<${Link} href=${path`/topics/${topic}`}>${topic}</${Link}>`);
  return row.topics.length ? html`<span>${shown}${row.topics.length > 2 && ` and ${row.topics.length - 2} more`}</span>` : "–";
}

const GROUP = { key: "group", title: "Group", sort: true, show: (row) => html`<${Link} href=${path`/groups/${row.group}`}>${row.group}</${Link}>` };
const UNREAD = { key: "records", title: "Unread", sort: true, numeric: true, show: (row) => count(row.records), note: "Stored records that the group has not read." };
const TOPICS = { key: "topics", title: "Topics", show: topics };
export const COLUMNS = [
  { key: "risk", title: "Status", sort: true, descending: true, show: (row) => html`<${Status} row=${row} />` },
  GROUP,
  UNREAD,
  { key: "time_ms", title: "Time behind", sort: true, numeric: true, show: (row) => duration(row.time_ms), note: "Age of the first unread record, from the record itself." },
  { key: "trend_1h_per_s", title: "Trend", sort: true, numeric: true, show: trend, note: "By how many records a second the lag grew over the last hour." },
  { key: "eta_ms", title: "ETA", sort: true, numeric: true, show: (row) => html`<${Eta} row=${row} />`, note: "When all is read, if both rates stay the same." },
  { key: "expires_in_ms", title: "Data loss", sort: true, numeric: true, show: (row) => html`<${DataLoss} row=${row} />`, note: "When retention may delete the first unread record." },
  { key: "members", title: "Members", sort: true, numeric: true, show: (row) => count(row.members) },
  TOPICS,
];
const OF_KAFKA = [
  GROUP,
  { key: "state", title: "State", sort: true, show: (row) => row.state.toLowerCase() },
  UNREAD,
  TOPICS,
];

export default function Groups({ query }) {
  const me = useMe();
  const chips = (data) => html`<div class="chips" role="group" aria-label="Show only">
    ${CHIPS.filter(([show]) => me.direct || show === "empty").map(([show, word]) => html`<button type="button" key=${show} aria-pressed=${query.show === show} title=${NOTES[show]}
      onClick=${() => setQuery({ show: query.show === show ? "" : show, page: "" })}>${word}${data ? ` ${count(data.counts[show])}` : ""}</button>`)}
  </div>`;
  const empty = query.show
    ? html`No group is ${CHIPS.find(([show]) => show === query.show)?.[1]}.`
    : html`There is no consumer group yet. Make one: <code>kafscale consume TOPIC --group NAME</code>`;
  return html`<h1>Groups</h1>
    <${List} path="/groups" query=${query} values=${{ show: query.show, topic: query.topic }} columns=${me.direct ? COLUMNS : OF_KAFKA} search="Name of a group"
      name=${me.direct ? "-risk" : "group"} rowKey="group" filters=${chips} every=${me.direct ? reportEvery : undefined} about=${(data) => html`<${AsOf} data=${data} topic=${query.topic} />`} empty=${empty} />`;
}

/** Of when the report is, what it does not know, and why it is not newer. */
export function AsOf({ data, topic }) {
  const { utc } = useSettings();
  return html`<div class="as-of">
    ${topic && html`<p>Groups that read <${Link} href=${path`/topics/${topic}`}>${topic}</${Link}>. <${Link} href="/groups">Show all</${Link}></p>`}
    ${data.trouble && html`<p class="warn-text">Not refreshed: ${data.trouble}</p>`}
    ${data.at_ms ? html`<p class="hint">As of ${time(data.at_ms, utc)}.${data.history_ms === null ? " No history yet, so status, trend and ETA are not known." : ""}</p>`
      : data.making && html`<p class="hint" role="status">Reading how far each group is…</p>`}
  </div>`;
}
