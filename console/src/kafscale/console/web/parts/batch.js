// The batch of a record and its object. It is read from the store, so only when somebody asks.
import { html } from "../html.js";
import { path } from "../api.js";
import { Link } from "../router.js";
import { Failure } from "./failure.js";
import { bytes, count } from "./format.js";
import { useLines } from "./lines.js";

export function Batch({ topic, row }) {
  const { data, error, busy, run } = useLines();
  const show = () => run(path`/topics/${topic}/records/${row.partition}/${row.offset}` + "/batch");
  const { batch } = data;
  return html`<section aria-busy=${busy}>
    ${!batch && html`<button type="button" class="quiet" disabled=${busy} onClick=${show}>Show its batch</button>`}
    ${error && html`<${Failure} error=${error} />`}
    ${batch === null && html`<p class="hint">The store does not have it: it is deleted or not written yet.</p>`}
    ${batch && html`<h3>Batch</h3><dl class="facts">
      <dt>Offsets</dt><dd>${batch.base_offset} to ${batch.last_offset}, ${count(batch.records)} records, ${bytes(batch.bytes)} as stored</dd>
      <dt>Codec</dt><dd>${batch.codec}</dd>
      <dt>Producer</dt><dd>${batch.producer_id === null ? "without idempotence" : `id ${batch.producer_id}, epoch ${batch.producer_epoch}, first sequence number ${batch.base_sequence}`}${batch.is_transactional && ", in a transaction"}</dd>
      <dt>Leader epoch</dt><dd>${batch.leader_epoch}</dd>
      <dt>Object</dt><dd class="mono">${batch.object}${batch.object_kind === "bundle" && ` from byte ${batch.object_at}`}</dd>
      <dt>Stored in</dt><dd>a ${batch.object_kind}, ${bytes(batch.object_bytes)} of this partition (<${Link} href="/storage">Storage</${Link}>)</dd>
    </dl>`}
  </section>`;
}
