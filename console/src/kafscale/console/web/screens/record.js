// One record in full: every format that its bytes fit, hex with offsets, and its neighbours in the partition.
import { html, useState } from "../html.js";
import { path } from "../api.js";
import { Link } from "../router.js";
import { Loaded } from "../parts/load.js";
import { useMe } from "../parts/me.js";
import { Batch } from "../parts/batch.js";
import { Produce } from "../parts/produce.js";
import { useSettings } from "../parts/settings.js";
import { ago, bytes, count, time } from "../parts/format.js";
import { Copies, Reason } from "../parts/record.js";

export default function RecordScreen({ params, query }) {
  const { topic, partition, offset } = params;
  const { isolation } = query;
  const more = isolation ? `?isolation=${isolation}` : "";
  const at = (number) => path`/topics/${topic}/${partition}/${number}` + more;
  return html`
    <p class="crumbs"><${Link} href="/topics">Topics</${Link}> › <${Link} href=${path`/topics/${topic}` + more}>${topic}</${Link}></p>
    <h1>Offset ${offset} of partition ${partition}</h1>
    <${Loaded} path=${path`/topics/${topic}/records/${partition}/${offset}`} values=${{ isolation }} show=${(found) => html`
      <nav class="pages" aria-label="Neighbours in the partition">
        ${found.previous === null ? html`<span class="faint">first record</span>` : html`<${Link} href=${at(found.previous)}>‹ ${found.previous}</${Link}>`}
        ${found.next === null ? html`<span class="faint">last record</span>` : html`<${Link} href=${at(found.next)}>${found.next} ›</${Link}>`}
        <span class="faint">offsets ${count(found.start)} to ${count(found.end - 1)}</span>
      </nav>
      ${found.record ? html`<${Whole} key=${found.offset} topic=${topic} record=${found.record} isolation=${isolation} />` : html`<div class="failure" role="alert"><strong>No record</strong>
        <p>Here is no record: ${found.missing}.</p>
        ${!isolation && html`<p><${Link} href=${path`/topics/${topic}/${partition}/${offset}` + "?isolation=uncommitted"}>Show it with uncommitted records</${Link}></p>`}</div>`}
    `} />`;
}

function Whole({ topic, record, isolation }) {
  const { utc } = useSettings();
  const me = useMe();
  const row = { partition: record.partition, offset: record.offset, value: record.value.shown };
  return html`
    <dl class="facts">
      <dt>Time</dt><dd>${time(record.timestamp_ms, utc)} <span class="faint">(${ago(record.timestamp_ms)}, ${record.timestamp_kind === "append" ? "of the log" : "of the producer"})</span></dd>
      <dt>Size</dt><dd>${bytes(record.bytes)}</dd>
      <dt>Leader epoch</dt><dd>${record.leader_epoch ?? "unknown"}</dd>
      ${record.state && html`<dt>Transaction</dt><dd><span class="badge">${record.state}</span></dd>`}
    </dl>
    <${Copies} topic=${topic} row=${row} isolation=${isolation}>
      ${!me.read_only && html`<${Produce} topic=${topic} row=${row} isolation=${isolation} />`}
    </${Copies}>
    <${Field} title="Key" field=${record.key} />
    <${Field} title="Value" field=${record.value} />
    ${me.direct && html`<${Batch} topic=${topic} row=${row} />`}
    <h2>Headers</h2>
    ${record.headers.length === 0 ? html`<p class="hint">It has no headers.</p>` : record.headers.map((header, at) => html`<${Field} key=${at} title=${header.name} field=${header} level="h3" />`)}
  `;
}

/** The chosen format and hex are side by side on a wide screen. */
function Field({ title, field, level = "h2" }) {
  const [chosen, setChosen] = useState(field.shown.format);
  if (field.shown.bytes === null) return html`<${level}>${title}</${level}><p class="hint">null${title === "Value" ? ": a tombstone, which deletes its key from a compacted topic" : ""}</p>`;
  const view = field.shown.format === chosen ? field.shown : field.views.find((each) => each.format === chosen);
  const formats = [...new Set([field.shown.format, ...field.views.map((each) => each.format)])];
  return html`<section>
    <${level}>${title} <span class="faint">${bytes(field.shown.bytes)}</span></${level}>
    <div class="chips" role="group" aria-label=${`Format of ${title}`}>
      ${formats.map((each) => html`<button type="button" key=${each} aria-pressed=${each === chosen} onClick=${() => setChosen(each)}>${each}</button>`)}
    </div>
    <${Reason} view=${view} />
    <div class="sides">
      <pre tabindex="0" aria-label=${`${title} as ${chosen}`}>${view.text}</pre>
      <pre tabindex="0" aria-label=${`${title} in hex with offsets`}>${field.dump}</pre>
    </div>
    ${view.cut && html`<p class="hint">This is the beginning of it.</p>`}
  </section>`;
}
