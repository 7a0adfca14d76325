// The dialog that produces the shown records to another topic.
import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Link } from "../router.js";
import { Failure } from "./failure.js";
import { counted } from "./format.js";
import { useMe } from "./me.js";

/** `rows` have partition and offset. */
export function Redrive({ topic, rows, isolation }) {
  const me = useMe();
  const [taken, setTaken] = useState(null);
  if (me.read_only) return null;
  return html`<button type="button" onClick=${() => setTaken(rows)}>Produce to another topic…</button>
    ${taken && html`<${Dialog} topic=${topic} rows=${taken} isolation=${isolation} close=${() => setTaken(null)} />`}`;
}

function Dialog({ topic, rows, isolation, close }) {
  const [keep, setKeep] = useState("all");
  const [state, setState] = useState({});
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  const send = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    const names = (given.get("names") ?? "").split("\n").map((name) => name.replace(/\r$/, "")).filter(Boolean);
    const body = { to: given.get("to").trim(), records: rows.map((row) => [row.partition, row.offset]), headers: { all: null, none: [], some: names }[keep] };
    setState({ busy: true });
    try {
      setState({ to: body.to, sent: await change("POST", path`/topics/${topic}/records/redrive`, { ...body, isolation: isolation || "committed" }) });
    } catch (failure) {
      setState({ failure });
    }
  };
  return html`<dialog ref=${show} onClose=${close} aria-labelledby="redrive" class="produce">
    <h2 id="redrive">Produce ${counted(rows.length, "record")} of ${topic} to another topic</h2>
    <form class="stack" onSubmit=${send}>
      <p class="hint">Key and value stay. The time is that of now, and the key decides the partition. The records stay in ${topic}, too.</p>
      <label>Topic <input name="to" required autocomplete="off" /></label>
      <label>Headers <select value=${keep} onChange=${(event) => setKeep(event.target.value)}>
        <option value="all">keep all</option><option value="none">keep none</option><option value="some">keep only…</option></select></label>
      ${keep === "some" && html`<textarea name="names" aria-label="Names of headers" rows="3" spellcheck="false" required placeholder="a name on each line"></textarea>`}
      <div class="tools">
        <span class="space"></span>
        <button type="button" onClick=${(event) => event.target.closest("dialog").close()}>Close</button>
        <button class="primary" disabled=${state.busy || state.sent}>${state.busy ? "Sending…" : "Send"}</button>
      </div>
    </form>
    ${state.failure && html`<${Failure} error=${state.failure} />`}
    ${state.sent && html`<p role="status">Written: ${state.sent.written} of ${counted(state.sent.items.length, "record")}</p>
      <div class="scroll"><table><caption>Report</caption>
        <thead><tr><th scope="col">Record</th><th scope="col">Place in ${state.to}</th></tr></thead>
        <tbody>${state.sent.items.map((each) => html`<tr key=${`${each.partition}/${each.offset}`}><td>partition ${each.partition}, offset ${each.offset}</td>
          <td>${each.sentence ?? html`<${Link} href=${path`/topics/${state.to}/${each.to_partition}/${each.to_offset}`}>partition ${each.to_partition}, offset ${each.to_offset}</${Link}>`}</td></tr>`)}</tbody>
      </table></div>`}
  </dialog>`;
}
