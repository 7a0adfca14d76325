// -- tables that sort by any column --------------------------------------------------------------------------------

// `kept` is how the table is sorted, {by: index of the head, up}; a click changes it, so that the next drawing has the
// same order. On a narrow screen a head that is `minor` is not shown, and another has its `brief` name.
function table(heads, items, kept) {
  const body = el("tbody", {});
  const kinds = (head) => [head.text ? "text" : "", head.minor ? "minor" : ""].filter(Boolean).join(" ") || null;
  const cells = heads.map((head, index) => {
    const button = el("button", { type: "button" }, ...(head.brief ? both(head.name, head.brief) : [head.name]));
    if (head.about) explain(button, head.about);
    button.addEventListener("click", () => {
      kept.up = kept.by === index ? !kept.up : Boolean(head.text);
      kept.by = index;
      sort();
    });
    return el("th", { class: kinds(head), scope: "col" }, button);
  });
  const sort = () => {
    const head = heads[kept.by];
    for (const cell of cells) cell.removeAttribute("aria-sort");
    cells[kept.by].setAttribute("aria-sort", kept.up ? "ascending" : "descending");
    const sorted = [...items].sort((a, b) => {
      const [one, two] = [head.value(a), head.value(b)];
      if (one === two) return 0;
      if (one === null) return 1;
      if (two === null) return -1;
      return (one < two ? -1 : 1) * (kept.up ? 1 : -1);
    });
    body.replaceChildren(...sorted.map((item) => el("tr", {}, ...heads.map((each) => {
      const shown = each.cell ? each.cell(item) : each.value(item);
      return el("td", { class: kinds(each), title: each.text && typeof shown === "string" ? shown : null }, shown === null ? "" : shown);
    }))));
  };
  sort();
  return el("table", {}, el("thead", {}, el("tr", {}, ...cells)), body);
}

const both = (wide, narrow) => [el("span", { class: "wide-only" }, wide), el("span", { class: "narrow-only" }, narrow)];
const amount = (value) => el("span", {}, ...both(count(value), short(value)));
const bad = (value, isBad) => el("span", { class: isBad ? "bad" : null }, value);

const PARTITIONS = [
  { name: "topic", text: true, value: (row) => row.topic },
  { name: "partition", brief: "#", value: (row) => row.partition },
  { name: "status", text: true, value: (row) => SEVERITY[row.status], cell: (row) => row.committed ? pill(row.status) : pill(row.status, "no commit") },
  { name: "unread", value: (row) => row.records, cell: (row) => amount(row.records), about: "Records between the committed offset and the end. Without a commit: all that are stored" },
  { name: "to stable", minor: true, value: (row) => row.stable, cell: (row) => explain(amount(row.stable), `the last stable offset is ${count(row.stableEnd)}`), about: "Unread records below the last stable offset, where the oldest open transaction begins. A read_committed group can read no more" },
  { name: "bytes", minor: true, value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
  { name: "behind", minor: true, value: (row) => row.time, cell: (row) => span(row.time), about: "Age of the first unread record" },
  { name: "read /s", minor: true, value: (row) => row.consume, cell: (row) => short(row.consume) },
  { name: "written /s", minor: true, value: (row) => row.produce, cell: (row) => short(row.produce) },
  { name: "ETA", minor: true, value: (row) => row.eta, cell: (row) => row.records ? span(row.eta) : "", about: "Time until all is read, at the present rates; empty if the group is not catching up" },
  { name: "expires in", brief: "expires", value: (row) => row.expires, cell: (row) => bad(until(row.expires), row.risk), about: "Time until retention may delete the first unread record" },
  { name: "ahead", minor: true, value: (row) => row.ahead, cell: (row) => MISPLACED[row.status] ? bad(row.ahead ? amount(row.ahead) : MISPLACED[row.status], true) : "", about: "How far the committed offset is beyond the end of the log" },
  { name: "lost", value: (row) => row.lost, cell: (row) => row.lost ? bad(amount(row.lost), true) : "", about: "Records that were deleted before the group read them" },
  { name: "reader", text: true, minor: true, value: (row) => row.client, cell: (row) => row.client === null ? null : `${row.client} ${row.host}` },
  { name: "unread, over time", minor: true, value: (row) => row.peak, cell: (row) => explain(spark(row.line, 110, 20, "lag over time"), `at most ${count(row.peak)} in this time`) },
];

const MEMBERS = [
  { name: "host", text: true, value: (member) => member.host },
  { name: "client", text: true, minor: true, value: (member) => member.client },
  { name: "member", text: true, minor: true, value: (member) => member.id },
  { name: "partitions", brief: "parts", value: (member) => member.partitions },
  { name: "unread", value: (member) => member.records, cell: (member) => amount(member.records) },
  { name: "behind", value: (member) => member.time, cell: (member) => span(member.time), about: "Age of the first unread record of its partitions" },
  { name: "lost", value: (member) => member.lost, cell: (member) => member.lost ? bad(amount(member.lost), true) : "" },
];

const TOPICS = [
  { name: "topic", text: true, value: (topic) => topic.name },
  { name: "partitions", minor: true, value: (topic) => topic.partitions },
  { name: "groups", minor: true, value: (topic) => topic.groups },
  { name: "slowest group", brief: "slowest", text: true, value: (topic) => topic.slowest },
  { name: "behind", value: (topic) => topic.time, cell: (topic) => span(topic.time) },
  { name: "written /s", minor: true, value: (topic) => topic.produce, cell: (topic) => short(topic.produce), about: "In the last hour" },
  { name: "written a day", minor: true, value: (topic) => topic.day, cell: (topic) => bytes(topic.day) },
  { name: "stored", minor: true, value: (topic) => topic.bytes, cell: (topic) => bytes(topic.bytes) },
  { name: "retention", minor: true, value: (topic) => topic.retention, cell: (topic) => topic.retention === null ? "none" : span(topic.retention) },
  { name: "head-room", brief: "room", value: (topic) => topic.room, cell: (topic) => bad(span(topic.room), topic.room !== null && topic.room < 0), about: "How much shorter retention could be without the slowest group losing records" },
];
