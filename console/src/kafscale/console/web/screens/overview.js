// The overview: what serves, who will lose data, what is stored and what it costs, as links to the screens that say more.
// It measures once, when it is opened, one after the other.
import { html, useEffect, useState } from "../html.js";
import { lines } from "../api.js";
import { Link } from "../router.js";
import { Loaded, useLoad } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { Table } from "../parts/table.js";
import { bytes, count, whenDeleted } from "../parts/format.js";
import { SCREENS } from "./index.js";

const PARTITIONS_MAX = 5_000; // beyond these, what reads all of etcd waits until somebody opens its screen
const SECONDS = 5;
const PORT = "127.0.0.1:9092"; // which the command takes by itself
const [FIRST_MS, LATER_MS] = [1_000, 60_000];

export default function Overview() {
  return html`<h1>Overview</h1>
    <${Loaded} path="/overview" show=${(found) => html`
      ${found.topics === 0 && html`<${FirstSteps} />`}
      <div class="tiles four">
        ${found.describes && html`<${Measured} />`}
        ${has("/groups") && found.groups > 0 && html`<${Risk} />`}
      </div>
      <div class="tiles">
        <${Tile} href="/topics" title="Topics" value=${count(found.topics)} more=${`${count(found.partitions)} partitions`} />
        <${Tile} href=${has("/groups") && "/groups"} title="Consumer groups" value=${count(found.groups)} more=${`${count(found.groups_empty)} without members`} />
        <${Tile} title="Brokers" value=${count(found.brokers.length)} more=${`cluster ${found.cluster_id}`} />
      </div>
      <h2>Brokers</h2>
      <${Table} caption="The addresses that clients get" rows=${found.brokers} columns=${[{ key: "id", title: "Broker", numeric: true }, { key: "address", title: "Address" }]} />
    `} />`;
}

/** Whether the console has this screen. */
function has(path) {
  return SCREENS.some((screen) => screen.path === path);
}

function FirstSteps() {
  const { bootstrap } = useMe();
  const where = bootstrap === PORT ? "" : ` -b ${bootstrap}`;
  return html`<section class="hint" aria-label="First steps">
    <p>There is no topic yet, or none that you may see.</p>
    <ol>
      <li>Send the first record: <code>echo hello | kafscale produce${where} greetings</code></li>
      <li>Look at it: <${Link} href="/topics/greetings">the topic greetings</${Link}></li>
      <li>Read it in a group: <code>kafscale consume${where} --group first greetings</code></li>
    </ol>
  </section>`;
}

function Risk() {
  const me = useMe();
  const { data, error } = useLoad("/groups", { show: "risk", rows: 1 }, (found) => (found?.making && !found.at_ms ? FIRST_MS : LATER_MS));
  if (!me.direct) return null;
  const title = "Groups that will lose data";
  if (error) return html`<${Tile} href="/groups" title=${title} value="unknown" more=${error.message} />`;
  if (!data?.at_ms) return html`<${Tile} href="/groups" title=${title} value="…" more="Reading how far each group is" />`;
  const { risk, lost } = data.counts;
  const soonest = risk ? data.items[0]?.expires_in_ms ?? null : null;
  const words = [soonest !== null && `the first ${whenDeleted(soonest)}`, lost > 0 && `${count(lost)} ${lost === 1 ? "has" : "have"} lost records`].filter(Boolean);
  const unknown = !risk && data.history_ms === null;
  if (!words.length) words.push(unknown ? "there is no history of lag yet" : "at the present rates each group reads in time");
  return html`<${Tile} href=${risk || !lost ? `/groups${risk ? "?show=risk" : ""}` : "/groups?show=lost"} title=${title} value=${risk ? count(risk) : unknown ? "not known yet" : "none"}
    state=${risk || lost ? "bad-text" : unknown ? undefined : "good-text"} more=${words.join(", ")} />`;
}

/** Serving, stored, cost: what etcd, the store and the services say. */
function Measured() {
  const [found, setFound] = useState({});
  useEffect(() => {
    const left = new AbortController();
    measure(left.signal, (more) => left.signal.aborted || setFound((old) => ({ ...old, ...more })));
    return () => left.abort();
  }, []);
  const { serving, stored, cost, large } = found;
  return html`
    ${has("/health") && html`<${Tile} href="/health" title="Serving" ...${health(serving)} />`}
    ${has("/storage") && html`<${Tile} href="/storage" title="Stored" ...${storage(stored, large)} />`}
    ${has("/cost") && html`<${Tile} href="/cost" title="Requests cost" ...${dollars(cost, large)} />`}
    ${(serving?.picture?.warnings ?? []).map((warning) => html`<p key=${warning} class="failure whole">${warning}</p>`)}`;
}

async function measure(signal, show) {
  const serving = has("/health") ? await first("/health", {}, "picture", signal) : {};
  const large = (serving.picture?.partitions ?? 0) > PARTITIONS_MAX;
  show({ serving, large });
  if (large || signal.aborted) return;
  if (has("/storage")) show({ stored: await first("/storage", {}, "etcd", signal) });
  if (has("/cost") && !signal.aborted) show({ cost: await first("/cost", { seconds: SECONDS }, "cost", signal) });
}

/** The lines of an answer up to the one with this name, as one value, or {error}. What would follow is not made. */
async function first(path, values, last, signal) {
  const enough = new AbortController();
  signal.addEventListener("abort", () => enough.abort());
  let data = {};
  try {
    await lines(path, {
      values,
      signal: enough.signal,
      onItem: (item) => {
        data = { ...data, ...item };
        if (last in data) enough.abort();
      },
    });
  } catch (error) {
    if (!(last in data)) return { error };
  }
  return data;
}

function health(said) {
  if (said?.error) return { value: "unknown", more: said.error.message };
  if (!said?.picture) return { value: "…", more: "Asking all services" };
  const { instances, serves, warnings } = said.picture;
  const ready = instances.filter((row) => row.health === "ready");
  const not = instances.find((row) => row.health !== "ready");
  const why = not ? `${not.service} ${not.node}: ${not.health}` : serves ? "instances are ready" : warnings[0] ?? "a service is missing";
  return { value: `${count(ready.length)} of ${count(instances.length)}`, more: serves ? why : `Clients are not served. ${why}`, state: serves ? (not ? "warn-text" : "good-text") : "bad-text" };
}

function storage(said, large) {
  if (large) return { value: "large", more: "Open it to read all of etcd" };
  if (said?.error) return { value: "unknown", more: said.error.message };
  if (!said?.etcd) return { value: "…", more: "Reading etcd" };
  const { used_bytes: used, quota_bytes: quota } = said.etcd;
  const size = said.topics.reduce((sum, row) => sum + row.bytes, 0);
  return { value: bytes(size), more: used === null ? "of records" : `etcd has ${bytes(used)}${quota ? `, ${((100 * used) / quota).toFixed(1)} % of its quota` : ""}` };
}

function dollars(said, large) {
  if (large) return { value: "large", more: "Open it to count requests" };
  if (said?.error) return { value: "unknown", more: said.error.message };
  if (!said?.cost) return { value: "…", more: `Counting requests for ${SECONDS} s` };
  const { put_usd: puts, get_usd: gets } = said.cost.total;
  const month = puts + (gets ?? 0);
  const value = month > 0 && month < 0.01 ? "< $0.01" : `$${month.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return { value, more: `a month, at the rate of the last ${SECONDS}\u00a0s${gets === null ? ", without GETs" : ""}` };
}

function Tile({ href, title, value, more, state }) {
  const body = html`<span class="title">${title}</span><strong class=${state}>${value}</strong><span class="more">${more}</span>`;
  return href ? html`<${Link} href=${href} class="tile">${body}</${Link}>` : html`<div class="tile">${body}</div>`;
}
