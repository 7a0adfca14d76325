// Reset of a group's offsets: which partitions, where to, and what it will do. What the preview shows is what is sent.
import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Link, setQuery } from "../router.js";
import { count, many, time } from "../parts/format.js";
import { Failure } from "../parts/failure.js";
import { Loaded } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { useSettings } from "../parts/settings.js";
import { Table } from "../parts/table.js";

const AIMS = [
  ["earliest", "the first stored record"],
  ["latest", "the end"],
  ["time", "a time"],
  ["duration", "a time ago"],
  ["shift", "some records back or forwards"],
  ["group", "where another group is"],
  ["csv", "exact offsets"],
];

export default function Reset({ params, query }) {
  return html`
    <p class="crumbs"><${Link} href="/groups">Groups</${Link}> / <${Link} href=${path`/groups/${params.group}`}>${params.group}</${Link}></p>
    <h1>Reset offsets of ${params.group}</h1>
    <${Loaded} path=${path`/groups/${params.group}`} show=${(data) => html`<${Form} name=${params.group} data=${data} query=${query} />`} />`;
}

function Form({ name, data, query }) {
  const known = [...new Set(data.partitions.map((row) => row.topic))];
  const topics = query.topics ? query.topics.split(",") : known;
  const to = query.to ?? "earliest";
  const [shown, setShown] = useState(null);
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const { utc } = useSettings();
  const set = (values) => {
    setShown(null);
    setQuery(values, { replace: true });
  };
  const preview = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    setShown(null);
    try {
      const given = new FormData(event.target);
      const partitions = topics.length === 1 ? numbers(given.get("partitions")) : null;
      const body = { topics, aim: aimOf(to, given, utc), partitions: partitions ? { [topics[0]]: partitions } : {} };
      setShown(await change("POST", path`/groups/${name}/reset/preview`, body));
    } catch (problem) {
      setFailure(problem);
    }
    setBusy(false);
  };
  return html`
    <form class="stack" onSubmit=${preview}>
      <fieldset><legend>1. Which partitions</legend>
        <label>Topics, separated by commas <input name="topics" required value=${topics.join(",")} onChange=${(event) => set({ topics: event.target.value })} list="topics" /></label>
        <datalist id="topics">${known.map((topic) => html`<option key=${topic} value=${topic} />`)}</datalist>
        ${topics.length === 1 && html`<label>Partitions <input name="partitions" placeholder="all, or 0,2,5-7" value=${query.partitions ?? ""} pattern="[0-9, \\-]*" onChange=${(event) => set({ partitions: event.target.value })} /></label>`}
      </fieldset>
      <fieldset><legend>2. To</legend>
        <div class="choices">${AIMS.map(([aim, words]) => html`<label key=${aim}><input type="radio" name="to" value=${aim} checked=${to === aim} onChange=${() => set({ to: aim, at: "" })} /> ${words}</label>`)}</div>
        <${Value} key=${to} to=${to} data=${data} topics=${topics} utc=${utc} query=${query} set=${set} />
      </fieldset>
      <div class="tools"><button class="primary" disabled=${busy}>${busy ? "Looking…" : "Preview"}</button><span class="hint">The preview changes nothing.</span></div>
    </form>
    ${failure && html`<${Failure} error=${failure} />`}
    ${shown && html`<${Preview} name=${name} shown=${shown} again=${() => setShown(null)} />`}`;
}

function Value({ to, data, topics, utc, query, set }) {
  const keep = (event) => set({ at: event.target.value });
  if (to === "time") return html`<label>Time (${utc ? "UTC" : "local"}) <input name="at" type="datetime-local" step="0.001" required value=${query.at ?? ""} onChange=${keep} /></label>`;
  if (to === "duration") return html`<label>How long ago <input name="ago" required pattern=${AGO} title=${AGO_HINT} value=${query.at ?? "1h"} onChange=${keep} /> <span class="hint">${AGO_HINT}</span></label>`;
  if (to === "shift") return html`<label>Records; below zero is back <input name="by" type="number" required value=${query.at ?? "-100"} onChange=${keep} /></label>`;
  if (to === "group") return html`<label>Group <input name="group" required value=${query.at ?? ""} onChange=${keep} /></label>`;
  if (to !== "csv") return null;
  const present = data.partitions.filter((row) => topics.includes(row.topic)).map((row) => `${row.topic},${row.partition},${row.committed ?? row.log_end}`);
  return html`<label>topic,partition,offset on each line; filled with the present offsets <textarea name="csv" rows=${Math.min(12, present.length + 1)} required onInput=${() => set({})}>${present.join("\n")}</textarea></label>`;
}

const UNITS_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 }; // by the first letter
const AGO = "\\s*[0-9]+(\\.[0-9]+)?\\s*(s|seconds?|m|min|minutes?|h|hours?|d|days?)\\s*";
const AGO_HINT = "a number and a unit: 90s, 5 minutes, 1.5 hours, 2d";

function agoMs(text) {
  const [, number, unit] = /([\d.]+)\s*(.)/.exec(text);
  return Math.round(Number(number) * UNITS_MS[unit]);
}

function aimOf(to, given, utc) {
  if (to === "time") return { to, at_ms: new Date(given.get("at") + (utc ? "Z" : "")).getTime() };
  if (to === "duration") return { to, ago_ms: agoMs(given.get("ago")) };
  if (to === "shift") return { to, by: Number(given.get("by")) };
  if (to === "group") return { to, group: given.get("group") };
  return to === "csv" ? { to, csv: given.get("csv") } : { to };
}

/** `0,2,5-7`; null is all. */
function numbers(text) {
  const found = [];
  for (const word of (text ?? "").split(",").map((each) => each.trim()).filter(Boolean)) {
    const [first, last = first] = word.split("-").map(Number);
    for (let number = first; number <= last && found.length < 50_000; number++) found.push(number);
  }
  return found.length ? found : null;
}

const effect = (row) => {
  if (row.before === null) return "gets its first offset";
  if (row.again) return html`reads ${count(row.again)} again`;
  if (row.skips) return html`<span class="warn-text">skips ${count(row.skips)}</span>`;
  return row.before === row.after ? "stays" : "moves over deleted records";
};
const COLUMNS = [
  { key: "place", title: "Partition", show: (row) => `${row.topic}/${row.partition}` },
  { key: "before", title: "Now", numeric: true, show: (row) => count(row.before) },
  { key: "after", title: "Then", numeric: true, show: (row) => count(row.after) },
  { key: "effect", title: "What it does", show: effect },
  { key: "first_ms", title: "Begins with", show: (row) => time(row.first_ms, row.utc), note: "Time of the record that the group reads first then." },
  { key: "log", title: "The log has", numeric: true, show: (row) => `${count(row.start)} to ${count(row.end)}` },
  { key: "wanted", title: "Note", show: (row) => (row.wanted === null ? "" : `${count(row.wanted)} is outside of the log`) },
];

function Preview({ name, shown, again }) {
  const me = useMe();
  const { utc } = useSettings();
  const [result, setResult] = useState(null);
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  if (result) return html`<${Result} name=${name} rows=${result.rows} />`;
  const times = new Map(shown.times.map(([topic, partition, ms]) => [`${topic}/${partition}`, ms]));
  const rows = shown.rows.map((row) => ({ ...row, utc, place: `${row.topic}/${row.partition}`, first_ms: times.get(`${row.topic}/${row.partition}`) }));
  const total = (key) => rows.reduce((sum, row) => sum + row[key], 0);
  const send = async () => {
    setBusy(true);
    setFailure(null);
    try {
      setResult(await change("POST", path`/groups/${name}/reset`, { rows: shown.rows }));
    } catch (problem) {
      setFailure(problem);
    }
    setBusy(false);
  };
  if (!rows.length) return html`<p class="note">Nothing to reset: no new offset is known for these partitions.</p>`;
  return html`<section aria-labelledby="preview">
    <h2 id="preview">3. What it will do</h2>
    <p>The group reads <strong>${count(total("again"))}</strong> records again and skips <strong class=${total("skips") ? "warn-text" : ""}>${count(total("skips"))}</strong>.
      ${shown.left_out > 0 && ` ${count(shown.left_out)} chosen partitions stay as they are.`}</p>
    <${Table} wide caption="Offsets before and after" rows=${rows} rowKey="place" columns=${COLUMNS} />
    ${shown.members && html`<p class="note">The group has members, so the coordinator would refuse the reset. Stop its consumers, then look at a new preview.</p>`}
    ${failure && html`<${Failure} error=${failure} retry=${failure.error === "moved" ? again : undefined} />`}
    ${!me.read_only && html`<div class="tools"><button type="button" class="danger" disabled=${busy || shown.members} onClick=${send}>${busy ? "Resetting…" : `Reset ${many(rows.length, "partition")}`}</button></div>`}
    <details><summary>The same as a command</summary><pre>${shown.commands.join("\n")}</pre></details>
  </section>`;
}

function Result({ name, rows }) {
  const wrong = rows.filter((row) => row.sent !== row.read).length;
  const columns = [
    { key: "place", title: "Partition", show: (row) => `${row.topic}/${row.partition}` },
    { key: "sent", title: "Sent", numeric: true, show: (row) => count(row.sent) },
    { key: "read", title: "Read back", numeric: true, show: (row) => count(row.read) },
    { key: "same", title: "", show: (row) => (row.sent === row.read ? html`<span class="good-text">equal</span>` : html`<span class="bad-text">different</span>`) },
  ];
  return html`<section role="status">
    <h2>${wrong ? `${many(wrong, "partition")} with another offset now` : `${many(rows.length, "partition")} reset`}</h2>
    <${Table} wide caption="Offsets sent and read back" rows=${rows.map((row) => ({ ...row, place: `${row.topic}/${row.partition}` }))} rowKey="place" columns=${columns} />
    <p><${Link} href=${path`/groups/${name}`}>Back to the group</${Link}></p>
  </section>`;
}
