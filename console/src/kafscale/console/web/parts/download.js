// A result as a file. The browser makes it from what the page has; nothing is asked again.
import { html } from "../html.js";

/** `more`: other buttons. */
export function Downloads({ name, columns, rows, more }) {
  return html`<div class="tools">
    <button type="button" onClick=${() => save(`${name}.csv`, "text/csv", [csv(columns, rows)])}>Download CSV</button>
    <button type="button" onClick=${() => save(`${name}.json`, "application/json", [json(columns, rows)])}>Download JSON</button>
    ${more}
  </div>`;
}

export function save(name, type, parts) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

function json(columns, rows) {
  return `[\n${rows.map((row) => JSON.stringify(Object.fromEntries(columns.map((column, at) => [column, row[at]])))).join(",\n")}\n]\n`;
}

function csv(columns, rows) {
  return [columns, ...rows].map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n";
}

/** Clients choose texts. A spreadsheet would execute a cell that begins like a formula; numbers stay as they are. */
function cell(value) {
  if (value === null) return "";
  const text = typeof value === "object" ? JSON.stringify(value) : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
