// -- groups: a card for each, with its cells, members, partitions and the command that resets it --------------------

const HEAT = [0, 1, 10, 60, 600, 3600, 21600];
const HEAT_NAMES = ["has read all", "under 10 s", "under 1 min", "under 10 min", "under 1 h", "under 6 h", "6 h and more"];
const opened = new Set();  // names of groups, also over a refresh
const sorted = {};  // how the tables of a group are sorted, by name

function heat(row) {
  if (!row.committed && row.records) return "nc";
  if (MISPLACED[row.status]) return "ahead";
  if (row.lost) return "lost";
  if (!row.records) return "h0";
  return row.time === null ? "hx" : `h${Math.max(1, HEAT.findLastIndex((least) => row.time >= least))}`;
}

function fact(value, name, kind, about) {
  const found = el("div", { class: `fact ${kind}` }, el("b", {}, value === "" ? "–" : value), el("span", {}, name));
  return about ? explain(found, about) : found;
}

function cells(group) {
  const paint = byId("paint").value;
  const strip = el("div", { class: "cells", role: "img", "aria-label": `${many(group.rows.length, "partition")}; the table has them one by one` });
  group.rows.forEach((row, index) => {
    const kind = paint === "status" && row.committed ? `dot s-${row.status}` : heat(row);
    strip.append(el("i", { class: kind + (row.risk ? " risk" : ""), "data-row": index }));
  });
  return explain(strip, (event) => {
    const row = group.rows[event.target.dataset.row];
    if (row === undefined) return "";
    const unread = !row.committed ? `no commit: ${count(row.records)} stored` : `${count(row.records)} unread${row.time === null ? "" : `, ${span(row.time)} behind`}`;
    const open = row.stable === row.records ? "" : `${count(row.stable)} of them are below the last stable offset, ${count(row.stableEnd)}`;
    return [`${row.topic}/${row.partition}  ${row.committed ? row.status : ""}`, unread, open, row.lost ? `${count(row.lost)} lost` : "",
      row.ahead ? `committed ${count(row.ahead)} beyond the end` : row.status === "REPLACED" ? "committed in a deleted topic of this name" : "",
      row.risk && row.expires !== null ? `at risk: ${deleted(row.expires)}` : "", row.client ? `${row.client} ${row.host}` : "no reader"].filter(Boolean).join("\n");
  });
}

function trend(group) {
  if (group.trend === null) return "";
  return Math.abs(group.trend) < 0.05 ? "steady" : `${group.trend > 0 ? "+" : "−"}${short(Math.abs(group.trend))}/s`;
}

// What is worth a sentence under the group's name.
function about(group) {
  const { records, expires } = group.uncommitted;
  const misplaced = group.rows.filter((row) => MISPLACED[row.status]).length;
  const missing = group.rows.filter((row) => !row.committed).length;
  const members = group.managed ? group.members ? many(group.members, "member") : "no members" : "assigns its partitions itself";
  return [group.life, members, many(group.rows.length, "partition"),
    misplaced ? `${misplaced} with a commit that is no place in the log` : "",
    group.unowned && group.members ? `${group.unowned} without a reader` : "",
    missing ? `${missing} without a commit${records ? ` (${shortly(records, "record")}${expires === null ? "" : `, the first ${deleted(expires)}`})` : ""}` : "",
    group.before === null ? "" : `${short(group.before)} unread 24 h ago`].filter(Boolean).join(" · ");
}

function card(group) {
  const link = el("a", { class: "link", href: `#group=${encodeURIComponent(group.name)}`, "aria-label": "Link to this group" }, "#");
  link.addEventListener("click", (event) => event.stopPropagation());
  const name = el("b", { title: group.name }, group.name);
  const line = el("div", { class: group.lost ? "line has-lost" : "line" }, pill(group.status),
    el("div", { class: "who" }, el("div", { class: "name" }, name, link), el("span", {}, about(group))),
    el("div", { class: "wide" }, spark(group.line, 120, 30, "lag of the group over time")),
    fact(short(group.records), "unread", ""), fact(span(group.time), "behind", ""),
    fact(trend(group), "trend, 1 h", "", "By how much the unread records grew or shrank each second of the last hour"),
    fact(short(group.lost), "lost", `lost${group.lost ? " bad" : ""}`, "Records that were deleted before the group read them. It falls to 0 when the group commits again"),
    fact(until(group.expires), group.risk ? `${group.risk} at risk` : "until loss", group.risk ? "until bad" : "until", "Until retention may delete a record that the group has not read"));
  const place = el("div", { class: "inside" });
  const box = el("details", { class: `group s-${group.status}` }, el("summary", {}, line, cells(group)), place);
  const show = () => {
    if (!place.firstChild) place.append(...inside(group));
  };
  box.group = group.name;
  box.open = opened.has(group.name);
  if (box.open) show();
  box.addEventListener("toggle", () => {
    if (box.open) { opened.add(group.name); show(); } else opened.delete(group.name);
  });
  return box;
}

function inside(group) {
  sorted[group.name] ||= { members: { by: 0, up: true }, partitions: { by: 3, up: false } };
  const members = membersOf(group);
  return [
    members.length ? el("h3", {}, "Members, by host") : null,
    members.length ? el("div", { class: "scroll" }, table(MEMBERS, members, sorted[group.name].members)) : null,
    el("h3", {}, "Partitions"),
    el("div", { class: "scroll" }, table(PARTITIONS, group.rows, sorted[group.name].partitions)),
    reset(group),
  ].filter(Boolean);
}

// Members that have partitions; the partitions without a member are one row beside them.
function membersOf(group) {
  const found = new Map();
  for (const row of group.rows) {
    if (row.member === null && !group.managed) continue;
    const member = found.get(row.member) || { id: row.member, client: row.client, host: row.member === null ? "no reader" : row.host, partitions: 0, records: 0, time: null, lost: 0 };
    member.partitions += 1;
    member.records += row.records;
    member.lost += row.lost;
    if (row.committed && row.time !== null) member.time = Math.max(member.time || 0, row.time);
    found.set(row.member, member);
  }
  return group.members ? [...found.values()] : [];
}

// -- the command that resets offsets ---------------------------------------------------------------------------------

// A pasted command must be what it looks like, so names with control or invisible characters get none.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;
const quoted = (name) => /^[\w.,:@%+/=-]+$/.test(name) ? name : `'${name.replaceAll("'", `'\\''`)}'`;

function commandOf(group, topic, to) {
  return `kafscale groups reset-offsets --topic ${quoted(topic)} --to ${to} --dry-run -- ${quoted(group)}`;
}

function reset(group) {
  const box = el("div", { class: "reset" }, el("h3", {}, "Reset its offsets"));
  if (UNPRINTABLE.test(group.name)) {
    box.append(el("p", { class: "dim" }, "The group's name has characters that cannot be pasted safely, so there is no command to copy."));
    return box;
  }
  const to = el("select", { "aria-label": "Where to" }, el("option", { value: "earliest" }, "to the earliest record"), el("option", { value: "latest" }, "to the end"));
  const list = el("div", {});
  const show = () => list.replaceChildren(...group.topics.map((topic) => copyable(commandOf(group.name, topic, to.value))));
  to.addEventListener("change", show);
  show();
  box.append(to, list, el("p", { class: "dim" }, group.members
    ? "Stop its members first: offsets of a group with members are not reset. Without --dry-run the command changes the offsets."
    : "Without --dry-run the command changes the offsets."));
  return box;
}

function copyable(text) {
  const code = el("code", { tabindex: "0" }, text);
  const button = el("button", { type: "button" }, "Copy");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(code);
      button.textContent = "Press Ctrl+C";
    }
  });
  return el("div", { class: "copy" }, code, button);
}

// -- which groups are shown, and in which order ------------------------------------------------------------------------

const ORDERS = {
  severity: (a, b) => b.lost - a.lost || (b.risk > 0) - (a.risk > 0) || (a.risk && (a.expires ?? Infinity) - (b.expires ?? Infinity)) ||
    SEVERITY[b.status] - SEVERITY[a.status] || (b.time || 0) - (a.time || 0) || b.records - a.records,
  time: (a, b) => (b.time ?? -1) - (a.time ?? -1),
  records: (a, b) => b.records - a.records,
  expires: (a, b) => (a.expires ?? Infinity) - (b.expires ?? Infinity),
  name: (a, b) => a.name < b.name ? -1 : 1,
};
const hidden = new Set();  // statuses

function groups() {
  const word = byId("search").value.trim().toLowerCase();
  const shown = data.groups.filter((group) => !hidden.has(group.status) &&
    (!word || group.name.toLowerCase().includes(word) || group.topics.some((topic) => topic.toLowerCase().includes(word))));
  shown.sort(ORDERS[byId("order").value]);
  byId("groups").replaceChildren(...shown.map(card));
  byId("none").hidden = shown.length > 0;
  byId("none").textContent = data.groups.length ? "No group matches." : "No group has a member or a committed offset.";
  tellAll();
  key();
}

function tellAll() {
  byId("all").textContent = [...document.querySelectorAll("details.group")].some((box) => !box.open) ? "Open all" : "Close all";
}

function key() {
  const rows = data.rows, found = new Set(rows.map(heat));
  const sample = (kind, name) => el("span", {}, el("i", { class: kind }), name);
  const extra = [["ahead", "commit is no place in the log"], ["lost", "lost records"], ["nc", "no commit"], ["hx", "not known"]].filter(([kind]) => found.has(kind));
  const shown = byId("paint").value === "status"
    ? [...data.statuses.filter((status) => rows.some((row) => row.status === status && row.committed)).map((status) => el("span", { class: `s-${status}` }, el("i", { class: "dot" }), status)),
      ...extra.filter(([kind]) => kind === "nc").map(([kind, name]) => sample(kind, name))]
    : [...HEAT_NAMES.map((name, level) => sample(`h${level}`, name)), ...extra.map(([kind, name]) => sample(kind, name))];
  byId("key").replaceChildren("A cell is a partition: ", ...shown, rows.some((row) => row.risk) ? el("span", { class: "bad" }, "ringed: at risk") : "");
}

// Opens the group that the address names, whatever the filters say.
function follow() {
  const name = new URLSearchParams(location.hash.slice(1)).get("group");
  const group = data.groups.find((each) => each.name === name);
  if (group === undefined) return;
  byId("search").value = "";
  if (hidden.delete(group.status)) chips();
  opened.add(name);
  groups();
  [...document.querySelectorAll("details.group")].find((box) => box.group === name).scrollIntoView();
}
