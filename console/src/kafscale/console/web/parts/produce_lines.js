// The dialog that sends many records: lines of JSON, pasted or of a file.
import { html, useState } from "../html.js";
import { change, path } from "../api.js";
import { Link } from "../router.js";
import { Failure } from "./failure.js";
import { counted } from "./format.js";

const EXAMPLE = `{"key": "a", "value": "1", "partition": 0, "headers": [{"key": "h", "value": "x"}]}`;

export function ProduceLines({ topic }) {
  const [shown, setShown] = useState(false);
  return html`<button type="button" onClick=${() => setShown(true)}>Produce lines…</button>
    ${shown && html`<${Dialog} topic=${topic} close=${() => setShown(false)} />`}`;
}

function Dialog({ topic, close }) {
  const [text, setText] = useState("");
  const [state, setState] = useState({});
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  const take = async (event) => {
    const file = event.target.files[0];
    if (!file) return;
    try {
      setText(await file.text());
      setState({});
    } catch (failure) {
      setState({ failure });
    }
  };
  const send = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      setState({ sent: await change("POST", path`/topics/${topic}/records/lines`, { lines: text }) });
    } catch (failure) {
      setState({ failure });
    }
  };
  return html`<dialog ref=${show} onClose=${close} aria-labelledby="produce-lines" class="produce">
    <h2 id="produce-lines">Produce lines to ${topic}</h2>
    <form class="stack" onSubmit=${send}>
      <p class="hint">A record on each line, as "Copy as JSON" gives it and <code>kafscale consume --output json</code> prints it. Topic and offset of a line are ignored;
        without a partition the key decides. If a line is wrong, nothing is sent.</p>
      <label>File <input type="file" accept=".json,.jsonl,.ndjson,.txt" onChange=${take} /></label>
      <textarea aria-label="Lines" rows="10" spellcheck="false" required placeholder=${EXAMPLE} value=${text} onInput=${(event) => setText(event.target.value)}></textarea>
      <div class="tools">
        <span class="space"></span>
        <button type="button" onClick=${(event) => event.target.closest("dialog").close()}>Close</button>
        <button class="primary" disabled=${state.busy}>${state.busy ? "Sending…" : "Send"}</button>
      </div>
    </form>
    ${state.failure && html`<${Failure} error=${state.failure} />`}
    ${state.sent && html`<p role="status">Written: ${state.sent.written} of ${counted(state.sent.items.length, "record")}</p>
      <div class="scroll"><table><caption>Report</caption>
        <thead><tr><th scope="col" class="number">Line</th><th scope="col">Place</th></tr></thead>
        <tbody>${state.sent.items.map((each) => html`<tr key=${each.line}><td class="number">${each.line}</td>
          <td>${each.sentence ?? html`<${Link} href=${path`/topics/${topic}/${each.partition}/${each.offset}`}>partition ${each.partition}, offset ${each.offset}</${Link}>`}</td></tr>`)}</tbody>
      </table></div>`}
  </dialog>`;
}
