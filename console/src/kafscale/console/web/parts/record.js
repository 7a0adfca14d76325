// Parts that show a record: one line of its bytes, and ways to take it elsewhere.
import { html, useState } from "../html.js";
import { get, path, query } from "../api.js";

export const FORMATS = ["auto", "json", "text", "number", "double", "hex", "base64"];
const LAID_OUT = new Set(["json", "avro", "protobuf"]);
const LINE = 200;

/** One line. Null and empty are said, so nobody takes them for a missing cell. */
export function preview(view) {
  if (view.bytes === null) return html`<span class="faint">null</span>`;
  if (view.bytes === 0) return html`<span class="faint">empty</span>`;
  const line = (LAID_OUT.has(view.format) ? view.text.replace(/\n */g, " ") : view.text).slice(0, LINE);
  return html`${view.format === "hex" && html`<span class="faint" title=${view.reason}>hex </span>`}${line}${view.text.length > LINE ? "…" : ""}`;
}

/** Its transaction, if that is open or aborted. */
export function State({ of: { state } }) {
  return state && html`<span class="badge">${state}</span> `;
}

export function recordPath(topic, row, isolation) {
  return path`/topics/${topic}/${row.partition}/${row.offset}` + query({ isolation });
}

/** By which schema it was decoded, or why it is not what the person chose. */
export function Reason({ view }) {
  if (view.schema) {
    const { id, name, subject } = view.schema;
    return html`<p class="hint">schema ${id}${name && `: ${name}`}${subject && `, ${subject}`}</p>`;
  }
  return view.reason ? html`<p class="hint">${view.reason}</p>` : null;
}

/** Copies what `pick(record)` gives of the record's own answer, which has all of its bytes. */
export function Copies({ topic, row, isolation, children }) {
  const [said, setSaid] = useState("");
  const copy = (pick, what) => async () => {
    try {
      const found = await get(path`/topics/${topic}/records/${row.partition}/${row.offset}`, { isolation });
      if (!found.record) throw new Error(found.missing);
      await navigator.clipboard.writeText(pick(found.record));
      setSaid(`${what} copied`);
    } catch (failed) {
      setSaid(`Not copied: ${failed.message}`);
    }
  };
  return html`<div class="tools">
    <button type="button" onClick=${copy((record) => record.json, "JSON")}>Copy as JSON</button>
    <button type="button" onClick=${copy((record) => record.value.base64 ?? "", "Value")} disabled=${row.value.bytes === null}>Copy value as base64</button>
    <button type="button" onClick=${copy((record) => record.command, "Command")}>Copy as command</button>
    ${children}
    <span role="status">${said}</span>
  </div>`;
}
