"use strict";
// Names are what clients chose: they reach the page as text nodes and attribute values alone, never as markup.
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+";
const SEVERITY = { OK: 0, UNKNOWN: 1, WARN: 2, ERR: 3, STALL: 3, REWIND: 4, STOP: 5 };
const HEAT = [0, 1, 10, 60, 600, 3600, 21600];
const HEAT_NAMES = ["has read all", "under 10 s", "under 1 min", "under 10 min", "under 1 h", "under 6 h", "6 h and more"];
const COLORS = 6;

// -- words ---------------------------------------------------------------------------------------------------------

const count = (value) => value === null ? "" : value.toLocaleString("en-US");
const short = (value) => {
  if (value === null) return "";
  const size = Math.abs(value);
  if (size < 1000) return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
  for (const [unit, name] of [[1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]])
    if (size < unit * 999.5 || unit === 1e12) return (value / unit).toFixed(size < unit * 9.95 ? 1 : 0) + name;
};
const bytes = (value) => value === null ? "" : short(value).replace("k", "K") + "B";
const span = (seconds) => {
  if (seconds === null) return "";
  const sign = seconds < 0 ? "−" : "";
  let left = Math.abs(seconds);
  if (left < 10) return sign + left.toFixed(1).replace(".0", "") + "s";
  left = Math.round(left);
  const parts = [];
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
    const some = Math.floor(left / unit);
    left -= some * unit;
    if (some || parts.length) parts.push(some ? some + name : "");
    if (parts.length === 2) break;
  }
  return sign + parts.filter(Boolean).join(" ");
};
const stamp = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 16) + " UTC";
const clock = (ms) => new Date(ms).toISOString().slice(11, 16);
const many = (number, word) => `${count(number)} ${word}${number === 1 ? "" : "s"}`;

// -- elements ------------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}
const tip = byId("tip");
function explain(node, text) {
  node.addEventListener("pointermove", (event) => {
    tip.textContent = typeof text === "function" ? text(event) : text;
    tip.hidden = !tip.textContent;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  });
  node.addEventListener("pointerleave", () => { tip.hidden = true; });
  return node;
}
const pill = (status) => el("span", { class: `pill s-${status}` }, status);

// -- rows, from columns --------------------------------------------------------------------------------------------

const columns = data.partitions;
const rows = columns.group.map((group, index) => {
  const row = { index };
  for (const name of Object.keys(columns)) row[name] = columns[name][index];
  row.group = data.groups[group];
  row.topic = data.names[row.topic];
  row.status = data.statuses[row.status];
  row.client = row.client === null ? null : data.names[row.client];
  row.host = row.host === null ? null : data.names[row.host];
  return row;
});
for (const group of data.groups) group.rows = [];
for (const row of rows) row.group.rows.push(row);
for (const group of data.groups) group.topics = [...new Set(group.rows.map((row) => row.topic))];

const heat = (row) => {
  if (!row.records) return 0;
  if (row.time === null) return "x";
  return Math.max(1, HEAT.findLastIndex((least) => row.time >= least));
};

function spark(levels, width, height, label) {
  const known = [...levels].map((level) => LEVELS.indexOf(level));
  const last = known.length - 1;
  const point = (level, index) => `${index} ${(62 - level).toFixed(0)}`;
  const first = known.findIndex((level) => level >= 0);
  const box = svg("svg", { class: "spark", width, height, viewBox: `0 -2 ${Math.max(1, last)} 66`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (first < 0) return box;
  const line = known.slice(first).map((level, index) => point(level, index + first)).join("L");
  box.append(svg("path", { class: "area", d: `M${first} 62L${line}L${last} 62Z` }), svg("path", { d: `M${line}` }));
  return box;
}

// -- header and tiles ----------------------------------------------------------------------------------------------

function header() {
  const history = data.history === null ? "no history yet: status, rates and ETA are not known" : `history of ${span(data.history / 1000)}`;
  byId("about").append(el("b", {}, data.cluster), ` at ${stamp(data.at)}, ${many(data.groups.length, "group")}, ${many(rows.length, "partition")}, ${history}`);
  document.title = `Consumer lag of ${data.cluster}`;
}

function tile(title, value, bad, ...more) {
  return el("div", { class: "card tile" }, el("h3", {}, title), el("div", { class: bad ? "big bad" : "big" }, value), ...more);
}

function tiles() {
  const groups = data.groups;
  const counts = {};
  for (const group of groups) counts[group.status] = (counts[group.status] || 0) + 1;
  const order = Object.keys(counts).sort((a, b) => SEVERITY[b] - SEVERITY[a]);
  const share = el("div", { class: "share", role: "img", "aria-label": order.map((status) => `${counts[status]} ${status}`).join(", ") });
  for (const status of order) {
    const piece = el("i", { class: `s-${status}` });
    piece.style.flex = counts[status];
    share.append(piece);
  }
  const words = order.map((status) => el("span", { class: `word s-${status}` }, el("b", {}, counts[status]), ` ${status}`));
  const slowest = rows.reduce((worst, row) => row.time !== null && (worst === null || row.time > worst.time) ? row : worst, null);
  const risky = rows.filter((row) => row.risk);
  const lost = rows.reduce((sum, row) => sum + row.lost, 0);
  const next = risky.filter((row) => row.expires !== null).reduce((first, row) => first === null || row.expires < first.expires ? row : first, null);
  const unread = rows.reduce((sum, row) => sum + row.records, 0);
  const unowned = groups.reduce((sum, group) => sum + group.unowned, 0);
  const idle = groups.filter((group) => group.life === "idle").length;
  const dead = groups.filter((group) => group.life === "dead").length;
  byId("tiles").append(
    el("div", { class: "card tile" }, el("h3", {}, "Groups by status"), share, el("div", { class: "counts" }, ...words)),
    tile("Farthest behind", slowest ? span(slowest.time) : "nobody", false, slowest ? el("p", {}, `${slowest.group.name}, ${slowest.topic}/${slowest.partition}`) : ""),
    tile("At risk of losing data", risky.length ? many(risky.length, "partition") : "none", risky.length > 0,
      el("p", {}, lost ? `${count(lost)} records are lost already` : next ? `the first in ${span(next.expires)}: ${next.group.name}` : "")),
    tile("Unread", short(unread), false, el("p", {}, `records, ${bytes(rows.reduce((sum, row) => sum + row.bytes, 0))} in the store`)),
    tile("Without a reader", many(unowned, "partition"), false, el("p", {}, `${many(dead, "group")} dead, ${idle} idle`)),
  );
}

// -- lag over time -------------------------------------------------------------------------------------------------

function chart() {
  const place = byId("chart");
  const shown = data.groups.filter((group) => group.series.some((value) => value > 0))
    .sort((a, b) => Math.max(...b.series) - Math.max(...a.series)).slice(0, COLORS);
  if (!shown.length || data.history === null) { byId("over-time").hidden = true; return; }
  const peaks = shown.map((group) => Math.max(...group.series));
  byId("log-scale").checked = peaks[0] > 30 * peaks[peaks.length - 1];
  byId("chart-about").textContent = shown.length < data.groups.length ? `the ${shown.length} groups with the highest peaks` : "";
  shown.forEach((group, index) => {
    const key = el("i", {});
    key.style.background = `var(--c${index})`;
    byId("legend").append(el("span", {}, key, group.name));
  });
  const draw = () => place.replaceChildren(lines(shown, place.clientWidth, 230, byId("log-scale").checked));
  byId("log-scale").addEventListener("change", draw);
  addEventListener("resize", () => requestAnimationFrame(draw));
  draw();
}

function lines(groups, width, height, logarithmic) {
  const left = 46, right = 8, top = 8, bottom = 22, points = data.points;
  const peak = Math.max(1, ...groups.flatMap((group) => group.series));
  const scale = logarithmic ? (value) => Math.log10(value + 1) / Math.log10(peak + 1) : (value) => value / peak;
  const x = (index) => left + index * (width - left - right) / Math.max(1, points - 1);
  const y = (value) => top + (1 - scale(value)) * (height - top - bottom);
  const box = svg("svg", { width, height, role: "img", "aria-label": "Unread records of groups over time; the rows below have the numbers" });
  for (const value of ticks(peak, logarithmic))
    box.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }), svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  const hours = (points - 1) * data.step / 3600000;
  const every = [1, 2, 3, 4, 6, 12].find((step) => hours / step <= width / 90) || 24;
  for (let index = 0; index < points; index++) {
    const at = data.start + index * data.step, hour = Math.ceil(at / 3600000) * 3600000;
    if (hour - at < data.step && (hour / 3600000) % every === 0 && index + (hour - at) / data.step <= points - 1)
      box.append(svg("text", { x: x(index + (hour - at) / data.step), y: height - 5, "text-anchor": "middle" }, clock(hour)));
  }
  groups.forEach((group, number) => {
    const known = group.series.map((value, index) => value < 0 ? null : `${x(index).toFixed(1)} ${y(value).toFixed(1)}`).filter(Boolean);
    const path = svg("path", { d: "M" + known.join("L"), fill: "none", "stroke-width": 1.8, "stroke-linejoin": "round" });
    path.style.stroke = `var(--c${number})`;
    box.append(path);
  });
  const rule = svg("line", { class: "rule", y1: top, y2: height - bottom, visibility: "hidden" });
  const field = svg("rect", { x: left, y: top, width: Math.max(1, width - left - right), height: height - top - bottom, fill: "transparent" });
  explain(field, (event) => {
    const at = Math.round((event.clientX - box.getBoundingClientRect().left - left) / Math.max(1, width - left - right) * (points - 1));
    const index = Math.max(0, Math.min(points - 1, at));
    rule.setAttribute("x1", x(index));
    rule.setAttribute("x2", x(index));
    rule.setAttribute("visibility", "visible");
    const told = groups.filter((group) => group.series[index] >= 0).map((group) => `${count(group.series[index])}  ${group.name}`);
    return [stamp(data.start + index * data.step), ...told].join("\n");
  });
  field.addEventListener("pointerleave", () => rule.setAttribute("visibility", "hidden"));
  box.append(rule, field);
  return box;
}

function ticks(peak, logarithmic) {
  if (logarithmic) {
    const found = [0];
    for (let value = 10; value <= peak; value *= 10) found.push(value);
    return found.length > 6 ? found.filter((_, index) => index % 2 === 0) : found;
  }
  const rough = peak / 4, unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each >= rough));
  const found = [];
  for (let value = 0; value <= peak; value += step) found.push(value);
  return found;
}

// -- tables --------------------------------------------------------------------------------------------------------

function table(heads, items, first) {
  const body = el("tbody", {});
  const row = el("tr", {});
  let by = null, up = false;
  const order = (head, cell) => {
    up = by === head ? !up : Boolean(head.text);
    by = head;
    for (const other of row.children) other.removeAttribute("aria-sort");
    cell.setAttribute("aria-sort", up ? "ascending" : "descending");
    const value = (item) => head.value(item);
    const sorted = [...items].sort((a, b) => {
      const [one, two] = [value(a), value(b)];
      if (one === two) return 0;
      if (one === null) return 1;
      if (two === null) return -1;
      return (one < two ? -1 : 1) * (up ? 1 : -1);
    });
    body.replaceChildren(...sorted.map((item) => el("tr", {}, ...heads.map((each) => {
      const shown = each.cell ? each.cell(item) : each.value(item);
      return el("td", { class: each.text ? "text" : null, title: each.text && typeof shown === "string" ? shown : null }, shown === null ? "" : shown);
    }))));
  };
  const cells = heads.map((head) => {
    const cell = el("th", { class: head.text ? "text" : null, scope: "col" });
    const button = el("button", { type: "button" }, head.name);
    if (head.about) explain(button, head.about);
    button.addEventListener("click", () => order(head, cell));
    cell.append(button);
    return cell;
  });
  row.append(...cells);
  order(heads[first], cells[first]);
  return el("table", {}, el("thead", {}, row), body);
}

const PARTITIONS = [
  { name: "topic", text: true, value: (row) => row.topic },
  { name: "partition", value: (row) => row.partition },
  { name: "status", text: true, value: (row) => SEVERITY[row.status], cell: (row) => pill(row.status) },
  { name: "unread", value: (row) => row.records, cell: (row) => count(row.records), about: "Records between the committed offset and the end" },
  { name: "bytes", value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
  { name: "behind", value: (row) => row.time, cell: (row) => span(row.time), about: "Age of the first record that was not read" },
  { name: "read /s", value: (row) => row.consume, cell: (row) => short(row.consume) },
  { name: "written /s", value: (row) => row.produce, cell: (row) => short(row.produce) },
  { name: "ETA", value: (row) => row.eta, cell: (row) => row.records ? span(row.eta) : "", about: "Until all is read, if it goes on like that; empty if it is not catching up" },
  { name: "expires in", value: (row) => row.expires, cell: (row) => el("span", { class: row.risk ? "bad" : null }, row.lost ? `lost ${count(row.lost)}` : span(row.expires)), about: "Until retention takes the first unread record" },
  { name: "reader", text: true, value: (row) => row.client, cell: (row) => row.client === null ? null : `${row.client} ${row.host}` },
  { name: "unread, over time", value: (row) => row.peak, cell: (row) => explain(spark(row.line, 110, 20, "lag over time"), `at most ${count(row.peak)} in this time`) },
];

const TOPICS = [
  { name: "topic", text: true, value: (topic) => topic.name },
  { name: "partitions", value: (topic) => topic.partitions },
  { name: "groups", value: (topic) => topic.groups },
  { name: "slowest group", text: true, value: (topic) => topic.slowest },
  { name: "behind", value: (topic) => topic.time, cell: (topic) => span(topic.time) },
  { name: "written /s", value: (topic) => topic.produce, cell: (topic) => short(topic.produce), about: "In the last hour" },
  { name: "written a day", value: (topic) => topic.day, cell: (topic) => bytes(topic.day) },
  { name: "stored", value: (topic) => topic.bytes, cell: (topic) => bytes(topic.bytes) },
  { name: "retention", value: (topic) => topic.retention, cell: (topic) => topic.retention === null ? "none" : span(topic.retention) },
  { name: "head-room", value: (topic) => topic.room, cell: (topic) => el("span", { class: topic.room !== null && topic.room < 0 ? "bad" : null }, span(topic.room)), about: "How much shorter retention could be without the slowest group losing records" },
];

// -- groups --------------------------------------------------------------------------------------------------------

function fact(value, name, kind, about) {
  const found = el("div", { class: `fact ${kind}` }, el("b", {}, value === "" ? "–" : value), el("span", {}, name));
  return about ? explain(found, about) : found;
}

function cells(group) {
  const paint = byId("paint").value;
  const strip = el("div", { class: "cells", role: "img", "aria-label": `${many(group.rows.length, "partition")}; the table has them one by one` });
  for (const row of group.rows)
    strip.append(el("i", { class: (paint === "status" ? `dot s-${row.status}` : `h${heat(row)}`) + (row.risk ? " risk" : ""), "data-row": row.index }));
  return explain(strip, (event) => {
    const index = event.target.dataset.row;
    if (index === undefined) return "";
    const row = rows[index];
    return [`${row.topic}/${row.partition}  ${row.status}`, `${count(row.records)} unread${row.time === null ? "" : `, ${span(row.time)} behind`}`,
      row.lost ? `${count(row.lost)} lost` : row.risk ? `at risk: expires in ${span(row.expires)}` : "", row.client ? `${row.client} ${row.host}` : "no reader"].filter(Boolean).join("\n");
  });
}

function trend(group) {
  if (group.trend === null) return "";
  const change = Math.abs(group.trend) < 0.05 ? "steady" : `${group.trend > 0 ? "+" : "−"}${short(Math.abs(group.trend))}/s`;
  return change;
}

function card(group) {
  const about = [group.life, group.members ? many(group.members, "member") : "no members", many(group.rows.length, "partition"),
    group.unowned ? `${group.unowned} without a reader` : ""].filter(Boolean).join(" · ");
  const risk = group.lost ? `${short(group.lost)} lost` : group.risk ? `${span(group.expires)}` : group.expires === null ? "" : span(group.expires);
  const line = el("div", { class: "line" }, pill(group.status),
    el("div", { class: "who" }, el("b", { title: group.name }, group.name), el("span", {}, about)),
    el("div", { class: "wide" }, spark(group.line, 150, 30, "lag of the group over time")),
    fact(short(group.records), "unread", "mid"), fact(span(group.time), "behind", ""),
    fact(trend(group), "trend, 1 h", "mid wide", "By how much the unread records grew or shrank each second of the last hour"),
    fact(risk, group.risk ? `${group.risk} at risk` : "until loss", group.risk ? "bad" : "", "Until retention takes a record that the group has not read"));
  const place = el("div", { class: "scroll" });
  const box = el("details", { class: `group s-${group.status}` }, el("summary", {}, line, cells(group)), place);
  box.addEventListener("toggle", () => {
    if (box.open && !place.firstChild) place.append(table(PARTITIONS, group.rows, 5));
  });
  return box;
}

const ORDERS = {
  severity: (a, b) => b.lost - a.lost || (b.risk > 0) - (a.risk > 0) || (a.risk && a.expires - b.expires) ||
    SEVERITY[b.status] - SEVERITY[a.status] || (b.time || 0) - (a.time || 0) || b.records - a.records,
  time: (a, b) => (b.time ?? -1) - (a.time ?? -1),
  records: (a, b) => b.records - a.records,
  expires: (a, b) => (a.expires ?? Infinity) - (b.expires ?? Infinity),
  name: (a, b) => a.name < b.name ? -1 : 1,
};
const hidden = new Set();

function groups() {
  const word = byId("search").value.trim().toLowerCase();
  const shown = data.groups.filter((group) => !hidden.has(group.status) &&
    (!word || group.name.toLowerCase().includes(word) || group.topics.some((topic) => topic.toLowerCase().includes(word))));
  shown.sort(ORDERS[byId("order").value]);
  byId("groups").replaceChildren(...shown.map(card));
  byId("none").hidden = shown.length > 0 || !data.groups.length;
  byId("all").textContent = "Open all";
  key();
}

function key() {
  const shown = byId("paint").value === "status"
    ? data.statuses.filter((status) => rows.some((row) => row.status === status)).map((status) => el("span", { class: `s-${status}` }, el("i", { class: "dot" }), status))
    : [...HEAT_NAMES.map((name, level) => el("span", {}, el("i", { class: `h${level}` }), name)), rows.some((row) => heat(row) === "x") ? el("span", {}, el("i", { class: "hx" }), "not known") : ""];
  byId("key").replaceChildren("A cell is a partition: ", ...shown, rows.some((row) => row.risk) ? el("span", { class: "bad" }, "ringed: at risk") : "");
}

function controls() {
  for (const status of [...new Set(data.groups.map((group) => group.status))].sort((a, b) => SEVERITY[b] - SEVERITY[a])) {
    const chip = el("button", { type: "button", class: `chip s-${status}`, "aria-pressed": "true" }, status);
    chip.addEventListener("click", () => {
      if (!hidden.delete(status)) hidden.add(status);
      chip.setAttribute("aria-pressed", String(!hidden.has(status)));
      groups();
    });
    byId("chips").append(chip);
  }
  byId("search").addEventListener("input", groups);
  byId("order").addEventListener("change", groups);
  byId("paint").addEventListener("change", groups);
  byId("all").addEventListener("click", () => {
    const boxes = [...document.querySelectorAll("details.group")];
    const open = boxes.some((box) => !box.open);
    for (const box of boxes) box.open = open;
    byId("all").textContent = open ? "Close all" : "Open all";
  });
}

header();
tiles();
chart();
controls();
groups();
byId("topics").append(table(TOPICS, data.topics, 4));
