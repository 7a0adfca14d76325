// The rows of records, each of which opens below itself.
import { html } from "../html.js";
import { Link, setQuery } from "../router.js";
import { useMe } from "../parts/me.js";
import { Batch } from "../parts/batch.js";
import { Produce } from "../parts/produce.js";
import { useSettings } from "../parts/settings.js";
import { bytes, count, time } from "../parts/format.js";
import { Copies, Reason, State, preview, recordPath } from "../parts/record.js";

export function Rows({ topic, rows, query }) {
  const { utc } = useSettings();
  const toggle = (id) => setQuery({ open: query.open === id ? "" : id }, { replace: true });
  return html`<div class="scroll"><table class="records">
    <caption>${rows.length === 1 ? "1 record" : `${count(rows.length)} records`}</caption>
    <thead><tr><th scope="col">Time</th><th scope="col" class="number">Partition</th><th scope="col" class="number">Offset</th>
      <th scope="col">Key</th><th scope="col">Value</th><th scope="col" class="number">Size</th></tr></thead>
    <tbody>
      ${rows.map((row) => {
        const open = query.open === row.id;
        return html`<tr key=${row.id}>
          <td data-title="Time" class="time"><button type="button" class="open" aria-expanded=${open} onClick=${() => toggle(row.id)}>${time(row.timestamp_ms, utc)}</button></td>
          <td data-title="Partition" class="number">${row.partition}</td>
          <td data-title="Offset" class="number"><${Link} href=${recordPath(topic, row, query.isolation)}>${row.offset}</${Link}></td>
          <td data-title="Key" class="mono clip">${preview(row.key)}</td>
          <td data-title="Value" class="mono clip"><${State} of=${row} />${preview(row.value)}</td>
          <td data-title="Size" class="number">${bytes(row.bytes)}</td>
        </tr>
        ${open && html`<tr key=${`${row.id} open`} class="below"><td colspan="6"><${Opened} topic=${topic} row=${row} query=${query} /></td></tr>`}`;
      })}
    </tbody>
  </table></div>`;
}

function Opened({ topic, row, query }) {
  const me = useMe();
  return html`<div class="record">
    ${[["Key", row.key], ["Value", row.value]].map(([title, view]) => html`<section key=${title}>
      <h3>${title} <span class="faint">${view.format}${view.bytes === null ? "" : `, ${bytes(view.bytes)}`}</span></h3>
      <${Reason} view=${view} />
      ${view.bytes !== null && html`<pre tabindex="0" aria-label=${title}>${view.text}</pre>`}
      ${view.cut && html`<p class="hint">This is the beginning. <${Link} href=${recordPath(topic, row, query.isolation)}>The whole ${title.toLowerCase()}</${Link}></p>`}
    </section>`)}
    ${row.headers.length > 0 && html`<section><h3>Headers</h3>
      <dl class="headers">${row.headers.map((header, at) => html`<dt key=${`${at} name`}>${header.name}</dt><dd key=${at}>${preview(header.value)}</dd>`)}</dl></section>`}
    ${me.direct && html`<${Batch} topic=${topic} row=${row} />`}
    <p class="faint">${row.timestamp_kind === "append" ? "time of the log" : "time of the producer"}, leader epoch ${row.leader_epoch ?? "unknown"}</p>
    <${Copies} topic=${topic} row=${row} isolation=${query.isolation}>
      ${!me.read_only && html`<${Produce} topic=${topic} row=${row} isolation=${query.isolation} />`}
    </${Copies}>
  </div>`;
}
