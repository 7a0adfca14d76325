// Users, ACLs and quotas. Each tab is a list with what changes it; without the right, the front door's refusal is shown.
import { html, useState } from "../html.js";
import { change, get, path } from "../api.js";
import { Link, setQuery } from "../router.js";
import { Confirm, names } from "../parts/confirm.js";
import { bytes, count, many } from "../parts/format.js";
import { Failure } from "../parts/failure.js";
import { useMe } from "../parts/me.js";
import { List, Table } from "../parts/table.js";

const TABS = [["users", "Users"], ["acls", "ACLs"], ["quotas", "Quotas"], ["why", "Why may…?"]];

export default function Access({ params, query }) {
  const tab = params.tab ?? "users";
  const shown = { users: Users, acls: Acls, quotas: Quotas, why: Why }[tab];
  return html`<h1>Access</h1>
    <nav class="tabs" aria-label="Access">${TABS.map(([each, title]) => html`<${Link} key=${each} href=${`/access/${each}`} aria-current=${each === tab ? "page" : undefined}>${title}</${Link}>`)}</nav>
    ${shown ? html`<${shown} key=${tab} query=${query} />` : html`<p>There is no such tab.</p>`}`;
}

/** A list with one dialog at a time: `dialog(asked, close, done)`. After a change the list is asked again. */
function Managed({ dialog, add, columns, ...list }) {
  const me = useMe();
  const [asked, setAsked] = useState(null);
  const [turn, setTurn] = useState(0);
  const done = () => setTurn((now) => now + 1);
  return html`
    <${List} key=${turn} ...${list} columns=${columns(me.read_only ? null : setAsked)}
      filters=${() => !me.read_only && html`<button type="button" class="primary" onClick=${() => setAsked({ word: "add" })}>${add}</button>`} />
    ${asked && dialog(asked, () => setAsked(null), done)}`;
}

const Action = ({ word, label, act }) => html`<button type="button" class="quiet" aria-label=${label} onClick=${act}>${word}</button>`;
const Password = () => html`<label>Password <input name="password" type="password" autocomplete="new-password" required maxlength="1024" /></label>`;

function Users({ query }) {
  const columns = (ask) => [
    { key: "user", title: "User", sort: true },
    { key: "mechanisms", title: "Mechanisms", show: (row) => row.mechanisms.join(", ") },
    { key: "iterations", title: "Iterations", sort: true, numeric: true, show: (row) => count(row.iterations) },
    ...(ask ? [{ key: "actions", title: "Change", show: (row) => html`
      <${Action} word="Password…" label=${`Password of ${row.user}`} act=${() => ask({ word: "password", user: row.user })} />
      <${Action} word="Remove…" label=${`Remove ${row.user}`} act=${() => ask({ word: "remove", user: row.user })} />` }] : []),
  ];
  const dialog = ({ word, user }, close, done) => {
    if (word === "add") return html`<${Confirm} mild title="New user" word="Add user" close=${close} done=${done} act=${(given) => change("POST", "/users", given)}>
      <label>User <input name="user" required maxlength="1024" autocomplete="off" autofocus /></label><${Password} />
      <p class="hint">With SCRAM-SHA-256 and SCRAM-SHA-512. A new user may do nothing until an ACL allows it.</p></${Confirm}>`;
    if (word === "password") return html`<${Confirm} mild title=${`Password of ${user}`} word="Change password" close=${close} done=${done} act=${(given) => change("PATCH", path`/users/${user}`, given)}>
      <${Password} /><p class="hint">Connections that are open stay logged in.</p></${Confirm}>`;
    return html`<${Confirm} title=${`Remove ${user}`} word="Remove user" close=${close} done=${done} act=${() => change("DELETE", path`/users/${user}`)}>
      <p>The user cannot log in any more. Its ACLs and quotas stay.</p></${Confirm}>`;
  };
  return html`<${Managed} path="/users" query=${query} columns=${columns} dialog=${dialog} add="New user…" search="Name of a user" name="user" rowKey="user"
    about=${(data) => data.troubles.map((each) => html`<p class="warn-text">${each}</p>`)}
    empty=${html`There is no user yet. The first admin: <code>kafscale users add admin --etcd</code>`} />`;
}

const RECIPES = [["consumer", "read topics in a group"], ["producer", "write to topics"], ["all", "do everything"], ["custom", "do these operations"]];
const words = (row) => `${row.permission} ${row.principal} ${row.operation} on ${row.pattern === "prefixed" ? `each ${row.resource} that begins with ${row.name}` : `${row.resource} ${row.name}`}`;
const plain = ({ resource, name, pattern, principal, host, operation, permission }) => ({ resource, name, pattern, principal, host, operation, permission });
const aclColumns = [
  { key: "principal", title: "Principal", sort: true },
  { key: "permission", title: "Permission", sort: true, show: (row) => html`<span class=${row.permission === "deny" ? "bad-text" : ""}>${row.permission}</span>` },
  { key: "operation", title: "Operation", sort: true, show: (row) => row.operation.replaceAll("_", " ") },
  { key: "resource", title: "Resource", sort: true, show: (row) => row.resource.replaceAll("_", " ") },
  { key: "name", title: "Name", sort: true, show: (row) => html`<code>${row.name}</code>${row.pattern === "prefixed" && "…"}` },
  { key: "host", title: "Host", sort: true },
];

function Acls({ query }) {
  const columns = (ask) => [
    ...aclColumns,
    ...(ask ? [{ key: "actions", title: "Change", show: (row) => html`<${Action} word="Remove…" label=${`Remove: ${words(row)}`} act=${() => ask({ word: "remove", row })} />` }] : []),
  ];
  const dialog = ({ word, row }, close, done) => word === "add"
    ? html`<${AddAcls} close=${close} done=${done} />`
    : html`<${Confirm} title="Remove this ACL" word="Remove ACL" close=${close} done=${done} act=${() => change("DELETE", "/acls", { rows: [plain(row)] })}>
        <p>${words(row)}, from ${row.host === "*" ? "any host" : row.host}.</p></${Confirm}>`;
  return html`<${Managed} path="/acls" query=${query} columns=${columns} dialog=${dialog} add="New ACLs…" search="Principal or name of a resource" name="principal" rowKey="text"
    empty="There is no ACL yet. Without one, only users of super.users may do anything, if the cluster has an authorizer." />`;
}

function AddAcls({ close, done }) {
  const [recipe, setRecipe] = useState("consumer");
  const [rows, setRows] = useState(null);
  const act = async (given) => {
    if (rows) return change("POST", "/acls", { rows });
    const wanted = {
      recipe, principal: given.principal, topics: names(given.topics), groups: names(given.groups), transactional_ids: names(given.ids),
      cluster: given.cluster === "on", prefixed: given.prefixed === "on", operations: names(given.operations), deny: given.deny === "on", host: given.host || "*",
    };
    setRows((await change("POST", "/acls/preview", wanted)).rows);
    return null;
  };
  const custom = recipe === "custom" || recipe === "all";
  const reset = () => setRows(null);
  return html`<${Confirm} mild title="New ACLs" word=${rows ? `Add ${many(rows.length, "ACL")}` : "Show the ACLs"} close=${close} done=${done} act=${act}>
    <label>Principal <input name="principal" defaultValue="User:" required pattern="[A-Za-z]+:.+" autofocus onInput=${reset} /></label>
    <label>may <select name="recipe" value=${recipe} onChange=${(event) => { setRecipe(event.target.value); reset(); }}>${RECIPES.map(([each, text]) => html`<option key=${each} value=${each}>${text}</option>`)}</select></label>
    ${recipe === "custom" && html`<label>Operations <input name="operations" required placeholder="read, describe_configs" onInput=${reset} /></label>`}
    <label>Topics <input name="topics" placeholder="orders, payments; * is all" required=${!custom} onInput=${reset} /></label>
    ${recipe !== "producer" && html`<label>Groups <input name="groups" required=${recipe === "consumer"} onInput=${reset} /></label>`}
    ${recipe !== "consumer" && html`<label>Transactional ids <input name="ids" onInput=${reset} /></label>`}
    <div class="choices">
      <label><input type="checkbox" name="prefixed" onChange=${reset} /> all names that begin so</label>
      ${custom && html`<label><input type="checkbox" name="cluster" onChange=${reset} /> the cluster too</label><label><input type="checkbox" name="deny" onChange=${reset} /> deny instead</label>`}
    </div>
    ${rows && html`<ul>${rows.map((row) => html`<li key=${words(row)}>${words(row)}</li>`)}</ul>`}
  </${Confirm}>`;
}

const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];
const quotaValue = (row) => row.quota.endsWith("byte_rate") ? `${bytes(row.value)}/s` : row.quota === "request_percentage" ? `${row.value} %` : `${count(row.value)}/s`;

function Quotas({ query }) {
  const columns = (ask) => [
    { key: "entity", title: "For", sort: true },
    { key: "quota", title: "Quota", sort: true, show: (row) => html`<code>${row.quota}</code>` },
    { key: "value", title: "Value", sort: true, numeric: true, show: (row) => html`<span title=${row.value}>${quotaValue(row)}</span>` },
    ...(ask ? [{ key: "actions", title: "Change", show: (row) => html`<${Action} word="Remove…" label=${`Remove ${row.quota} of ${row.entity}`} act=${() => ask({ word: "remove", row })} />` }] : []),
  ];
  const set = ({ kind, name, quota, value }) => change("PUT", "/quotas", { entity: { [kind]: name === "" ? null : name }, values: { [quota]: Number(value) } });
  const dialog = ({ word, row }, close, done) => word === "add"
    ? html`<${Confirm} mild title="Set a quota" word="Set quota" close=${close} done=${done} act=${set}>
        <label>For a <select name="kind"><option>user</option><option>client-id</option><option>ip</option></select></label>
        <label>Name; empty is every one without a quota of its own <input name="name" autocomplete="off" /></label>
        <label>Quota <select name="quota">${QUOTAS.map((each) => html`<option key=${each}>${each}</option>`)}</select></label>
        <label>Value: bytes or events a second, or percent <input name="value" type="number" min="0" step="any" required /></label></${Confirm}>`
    : html`<${Confirm} title="Remove this quota" word="Remove quota" close=${close} done=${done} act=${() => change("PUT", "/quotas", { entity: row.of, values: { [row.quota]: null } })}>
        <p>${row.quota} of ${row.entity} is ${quotaValue(row)} now. Without it the next more general quota holds, if there is one.</p></${Confirm}>`;
  return html`<${Managed} path="/quotas" query=${query} columns=${columns} dialog=${dialog} add="Set a quota…" search="User, client id or address" name="entity" rowKey="key" empty="There is no quota: nobody is throttled." />`;
}

const OPERATIONS = { topic: ["read", "write", "create", "delete", "alter", "describe", "describe_configs", "alter_configs"], group: ["read", "describe", "delete"], transactional_id: ["write", "describe"], cluster: ["create", "alter", "describe", "describe_configs", "alter_configs", "idempotent_write", "cluster_action"] };

function Why({ query }) {
  const [found, setFound] = useState(null);
  const [failure, setFailure] = useState(null);
  const resource = query.resource ?? "topic";
  const set = (name) => (event) => {
    setFound(null);
    setQuery({ [name]: event.target.value }, { replace: true });
  };
  const ask = async (event) => {
    event.preventDefault();
    setFailure(null);
    try {
      setFound(await get("/acls/explain", Object.fromEntries(new FormData(event.target))));
    } catch (problem) {
      setFound(null);
      setFailure(problem);
    }
  };
  return html`<form class="tools" onSubmit=${ask}>
      <label>May <input name="principal" required pattern="[A-Za-z]+:.+" placeholder="User:alice" value=${query.principal ?? "User:"} onChange=${set("principal")} /></label>
      <select name="operation" aria-label="Operation" value=${query.operation ?? "read"} onChange=${set("operation")}>${OPERATIONS[resource]?.map((each) => html`<option key=${each} value=${each}>${each.replaceAll("_", " ")}</option>`)}</select>
      <select name="resource" aria-label="Kind" value=${resource} onChange=${set("resource")}>${Object.keys(OPERATIONS).map((each) => html`<option key=${each} value=${each}>${each.replaceAll("_", " ")}</option>`)}</select>
      ${resource !== "cluster" && html`<input name="name" aria-label="Name" required placeholder="orders" value=${query.name ?? ""} onChange=${set("name")} />`}
      <button class="primary">Why?</button>
    </form>
    ${failure && html`<${Failure} error=${failure} />`}
    ${found && html`<section role="status">
      <p class="note"><strong class=${found.allowed === null ? "warn-text" : found.allowed ? "good-text" : "bad-text"}>${found.allowed === null ? "It depends." : found.allowed ? "Yes." : "No."}</strong> ${found.sentence}</p>
      ${found.rows.length > 0 && html`<${Table} caption="ACLs that apply to this resource, those that decide first" rows=${found.rows.map((row) => ({ ...row, text: words(row) + row.host }))} rowKey="text"
        columns=${[{ key: "why", title: "It", show: (row) => html`<span class=${{ allows: "good-text", denies: "bad-text" }[row.why] ?? "faint"}>${row.why}</span>` }, ...aclColumns.map((column) => ({ ...column, sort: false }))]} />`}
    </section>`}`;
}
