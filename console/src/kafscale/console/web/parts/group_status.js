// What a group or a partition is, in words. Colour is never the only sign.
import { html } from "../html.js";
import { count, duration, whenDeleted } from "./format.js";

const WORDS = {
  OK: ["keeps up", "good", "It reads as fast as records come, or has read all."],
  WARN: ["falling behind", "", "Its offsets move, but the lag did not fall once."],
  STOP: ["stopped", "bad", "Nothing was committed for longer than the last commits took."],
  STALL: ["stalled", "bad", "Commits continue, but the offset does not move."],
  REWIND: ["rewound", "", "Offsets went back and have not reached their old position."],
  LOST: ["lost records", "bad", "Records were deleted before the group read them."],
  AHEAD: ["ahead of its log", "bad", "The committed offset is beyond the end of the log."],
  REPLACED: ["of a deleted topic", "bad", "The committed offset belongs to a deleted topic with the same name."],
  ERR: ["in trouble", "bad", "One of its partitions has stopped, stalled or rewound."],
  UNKNOWN: ["not known yet", "plain", "The history is shorter than five minutes."],
};
const AT_RISK = "It will not have read its records before retention deletes them.";
const SOON = "Retention deletes records that it has not read within the hour, and it is not known yet how fast it reads.";
const TROUBLES = ["STOP", "STALL", "REWIND"];

function Badge({ word, kind, why }) {
  return html`<span class=${`badge ${kind}`} title=${why}>${word}</span>`;
}

export function Status({ row }) {
  const badges = [];
  const unknown = row.status === "UNKNOWN"; // at risk says more, so it is said alone
  if (row.lost) badges.push(html`<${Badge} word=${`lost ${count(row.lost)}`} kind="bad" why=${WORDS.LOST[2]} />`);
  else if (row.at_risk) badges.push(html`<${Badge} word="at risk" kind="" why=${unknown ? SOON : AT_RISK} />`);
  const worst = row.status === "ERR" ? TROUBLES.find((each) => row.statuses?.includes(each)) ?? "ERR" : row.status;
  if (row.committed === null) badges.push(html`<${Badge} word="no commit" kind="plain" why="The group has committed no offset here." />`);
  else if (worst && worst !== "LOST" && !(unknown && row.at_risk)) badges.push(html`<${Badge} word=${WORDS[worst][0]} kind=${WORDS[worst][1]} why=${WORDS[worst][2]} />`);
  else if (!worst && row.state) badges.push(html`<${Badge} word=${row.state.toLowerCase()} kind="plain" />`);
  return html`<span class="badges">${badges}</span>`;
}

/** When retention may delete the first unread record; red while the group does not get there in time. */
export function DataLoss({ row }) {
  if (row.expires_in_ms === null || row.expires_in_ms === undefined || !row.records) return "–";
  const why = row.expires_in_ms === 0 ? "It is past the topic's retention: the next run of retention deletes it." : undefined;
  return html`<span class=${row.at_risk ? "bad-text" : ""} title=${why}>${whenDeleted(row.expires_in_ms)}</span>`;
}

export function Eta({ row }) {
  if (row.eta_ms !== null && row.eta_ms !== undefined) return duration(row.eta_ms);
  return row.records && (row.consume_per_s ?? row.trend_1h_per_s ?? null) !== null ? html`<span title="At the present rates it does not catch up, or there is no history.">not in sight</span>` : "–";
}
