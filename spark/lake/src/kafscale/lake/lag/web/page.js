// -- the report: rows, from columns --------------------------------------------------------------------------------

const SEVERITY = { OK: 0, UNKNOWN: 1, WARN: 2, ERR: 3, STALL: 3, REWIND: 4, STOP: 5, REPLACED: 6, AHEAD: 7, LOST: 8 };
const MISPLACED = { AHEAD: "beyond the end", REPLACED: "of a deleted topic" };
let data;

function take(report) {
  const columns = report.partitions;
  const name = (number) => number === null ? null : report.names[number];
  report.rows = columns.group.map((group, index) => {
    const row = {};
    for (const each of Object.keys(columns)) row[each] = columns[each][index];
    row.group = report.groups[group];
    row.status = report.statuses[row.status];
    for (const each of ["topic", "member", "client", "host"]) row[each] = name(row[each]);
    return row;
  });
  for (const group of report.groups) group.rows = [];
  for (const row of report.rows) row.group.rows.push(row);
  for (const group of report.groups) group.topics = [...new Set(group.rows.map((row) => row.topic))];
  data = report;
}

// -- header and tiles ----------------------------------------------------------------------------------------------

function header() {
  const history = data.history === null ? "no history yet: status, rates and ETA are not known" : `history of ${span(Math.round(data.history / 1000))}`;
  byId("about").replaceChildren(el("b", {}, data.cluster), ` at ${stamp(data.at)}, ${many(data.groups.length, "group")}, ${many(data.rows.length, "partition")}, ${history}`);
  document.title = `Consumer lag of ${data.cluster}`;
}

function tile(title, value, isBad, ...more) {
  return el("div", { class: "card tile" }, el("h3", {}, title), el("div", { class: isBad ? "big bad" : "big" }, value), el("p", {}, ...more));
}

const link = (group) => el("a", { href: `#group=${encodeURIComponent(group.name)}` }, group.name);
const most = (items, value) => items.reduce((best, item) => best === null || value(item) > value(best) ? item : best, null);
const sum = (items, value) => items.reduce((total, item) => total + value(item), 0);

function statuses() {
  const counts = {};
  for (const group of data.groups) counts[group.status] = (counts[group.status] || 0) + 1;
  const order = Object.keys(counts).sort((a, b) => SEVERITY[b] - SEVERITY[a]);
  const share = el("div", { class: "share", role: "img", "aria-label": order.map((status) => `${counts[status]} ${status}`).join(", ") });
  for (const status of order) {
    const piece = el("i", { class: `s-${status}` });
    piece.style.flex = counts[status];
    share.append(piece);
  }
  const words = order.map((status) => el("span", { class: `word s-${status}` }, el("b", {}, counts[status]), ` ${status}`));
  return el("div", { class: "card tile" }, el("h3", {}, "Groups by status"), share, el("div", { class: "counts" }, ...words));
}

function tiles() {
  const groups = data.groups, rows = data.rows;
  const slowest = most(rows.filter((row) => row.committed && row.time !== null), (row) => row.time);
  const losers = rows.filter((row) => row.lost), risky = rows.filter((row) => row.risk && !row.lost);
  const next = most(risky.filter((row) => row.expires !== null), (row) => -row.expires);
  const loser = most(groups, (group) => group.lost);
  const unplaced = sum(groups, (group) => group.uncommitted.records);
  const unowned = sum(groups, (group) => group.unowned);
  const empty = groups.filter((group) => group.managed && !group.members), alone = groups.filter((group) => !group.managed);
  byId("tiles").replaceChildren(
    statuses(),
    tile("Lost records", losers.length ? short(sum(rows, (row) => row.lost)) : "none", losers.length > 0,
      ...(losers.length ? [`in ${many(losers.length, "partition")}, most by `, link(loser)] : [])),
    tile("At risk of losing data", risky.length ? many(risky.length, "partition") : "none", risky.length > 0,
      ...(next ? [`the first ${next.expires === 0 ? "at any time" : `in ${span(next.expires)}`}: `, link(next.group)] : [])),
    tile("Farthest behind", slowest ? span(slowest.time) : "nobody", false, ...(slowest ? [link(slowest.group), `, ${slowest.topic}/${slowest.partition}`] : [])),
    tile("Unread records", short(sum(rows, (row) => row.records)), false,
      unplaced ? `${short(unplaced)} of them without a commit` : `${bytes(sum(rows, (row) => row.bytes))} in the store`),
    tile("Without a reader", many(unowned, "partition"), false,
      empty.length ? `${many(empty.length, "group")} without members` : alone.length ? `not counted: ${many(alone.length, "group")} without membership` : "every group has members"),
  );
}

// -- controls ------------------------------------------------------------------------------------------------------

function chips() {
  const found = [...new Set(data.groups.map((group) => group.status))].sort((a, b) => SEVERITY[b] - SEVERITY[a]);
  byId("chips").replaceChildren(...found.map((status) => {
    const chip = el("button", { type: "button", class: `chip s-${status}`, "aria-pressed": String(!hidden.has(status)) }, status);
    chip.addEventListener("click", () => {
      if (!hidden.delete(status)) hidden.add(status);
      chip.setAttribute("aria-pressed", String(!hidden.has(status)));
      groups();
    });
    return chip;
  }));
}

function controls() {
  byId("search").addEventListener("input", groups);
  byId("order").addEventListener("change", groups);
  byId("paint").addEventListener("change", groups);
  byId("all").addEventListener("click", () => {
    const boxes = [...document.querySelectorAll("details.group")];
    const open = boxes.some((box) => !box.open);
    for (const box of boxes) box.open = open;
    byId("all").textContent = open ? "Close all" : "Open all";
  });
  byId("range").addEventListener("change", () => chart(data));
  byId("log-scale").addEventListener("change", () => chart(data));
  addEventListener("resize", () => requestAnimationFrame(() => chart(data)));
  addEventListener("hashchange", follow);
}

function show() {
  tip.hidden = true;
  header();
  tiles();
  chart(data);
  chips();
  groups();
  byId("topics").replaceChildren(table(TOPICS, data.topics, sortedTopics));
}

const sortedTopics = { by: 4, up: false };
take(JSON.parse(byId("data").textContent));
byId("log-scale").checked = scaleOf(data);
controls();
show();
follow();
