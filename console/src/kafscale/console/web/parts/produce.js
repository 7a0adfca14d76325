// The dialog that sends a record: a new one, or another with its bytes.
import { html, useState } from "../html.js";
import { change, get, path } from "../api.js";
import { Link } from "../router.js";
import { Failure } from "./failure.js";
import { useMe } from "./me.js";

const FORMATS = ["text", "json", "number", "hex", "base64"];
const SCHEMA = "schema";
const NULL = "null";
const NONE = { format: NULL, text: "" };
const EMPTY = { partition: "", key: NONE, value: { format: "text", text: "" }, headers: [] };

/** The bytes of a field of a record's own answer. As text if that is exact, else base64. */
function given(field) {
  if (field.base64 === null) return NONE;
  const text = field.views.find((each) => each.format === "text" && !each.cut);
  const exact = text && !/\r|\0/.test(text.text); // a text area changes line ends
  return exact ? { format: field.shown.format === "json" ? "json" : "text", text: text.text } : { format: "base64", text: field.base64 };
}

/** A button that opens the dialog. `row`: whose record is sent again, if any. */
export function Produce({ topic, partitions, row, isolation }) {
  const [began, setBegan] = useState(null);
  const [failure, setFailure] = useState(null);
  const open = async () => {
    setFailure(null);
    if (!row) return setBegan(EMPTY);
    try {
      const { record, missing } = await get(path`/topics/${topic}/records/${row.partition}/${row.offset}`, { isolation });
      if (!record) throw new Error(`Here is no record: ${missing}.`);
      setBegan({ partition: String(row.partition), key: given(record.key), value: given(record.value), headers: record.headers.map((each) => ({ name: each.name, value: given(each) })) });
    } catch (problem) {
      setFailure(problem);
    }
  };
  return html`<button type="button" onClick=${open}>${row ? "Produce again…" : "Produce…"}</button>
    ${failure && html`<${Failure} error=${failure} />`}
    ${began && html`<${Dialog} topic=${topic} began=${began} partitions=${partitions} close=${() => setBegan(null)} />`}`;
}

function Dialog({ topic, began, partitions, close }) {
  const { registry } = useMe();
  const [record, setRecord] = useState(began);
  const [state, setState] = useState({});
  const show = (dialog) => dialog && !dialog.open && dialog.showModal();
  const set = (values) => setRecord((old) => ({ ...old, ...values }));
  const setHeader = (at, values) => set({ headers: record.headers.map((each, other) => (other === at ? { ...each, ...values } : each)) });
  const send = async (event) => {
    event.preventDefault();
    setState({ busy: true });
    try {
      setState({ sent: await change("POST", path`/topics/${topic}/records`, body(record)) });
    } catch (failure) {
      setState({ failure });
    }
  };
  return html`<dialog ref=${show} onClose=${close} aria-labelledby="produce" class="produce">
    <h2 id="produce">Produce to ${topic}</h2>
    <form class="stack" onSubmit=${send}>
      <label>Partition ${partitions
        ? html`<select value=${record.partition} onChange=${(event) => set({ partition: event.target.value })}>
            <option value="">by the key</option>${partitions.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select>`
        : html`<input inputmode="numeric" pattern="[0-9]*" placeholder="by the key" value=${record.partition} onInput=${(event) => set({ partition: event.target.value })} />`}</label>
      <${Bytes} title="Key" lines="2" given=${record.key} set=${(key) => set({ key })} subject=${registry && `${topic}-key`} />
      <${Bytes} title="Value" lines="8" given=${record.value} set=${(value) => set({ value })} subject=${registry && `${topic}-value`} />
      ${record.headers.map((header, at) => html`<fieldset key=${at}>
        <legend>Header ${at + 1}</legend>
        <label>Name <input value=${header.name} onInput=${(event) => setHeader(at, { name: event.target.value })} /></label>
        <${Bytes} title=${`Value of header ${at + 1}`} lines="1" given=${header.value} set=${(value) => setHeader(at, { value })} />
        <button type="button" class="quiet" onClick=${() => set({ headers: record.headers.filter((_, other) => other !== at) })}>Remove</button>
      </fieldset>`)}
      <div class="tools">
        <button type="button" class="quiet" onClick=${() => set({ headers: [...record.headers, { name: "", value: { format: "text", text: "" } }] })}>Add a header</button>
        <span class="space"></span>
        <button type="button" onClick=${(event) => event.target.closest("dialog").close()}>Close</button>
        <button class="primary" disabled=${state.busy}>${state.busy ? "Sending…" : "Send"}</button>
      </div>
    </form>
    ${state.failure && html`<${Failure} error=${state.failure} />`}
    ${state.sent && html`<p role="status">Written: <${Link} href=${path`/topics/${topic}/${state.sent.partition}/${state.sent.offset}`}>partition ${state.sent.partition}, offset ${state.sent.offset}</${Link}></p>`}
  </dialog>`;
}

function body({ partition, key, value, headers }) {
  const bytes = (each) => (each.format === NULL ? null : each);
  return {
    partition: partition === "" ? null : Number(partition),
    key: bytes(key),
    value: bytes(value),
    headers: headers.map((each) => ({ name: each.name, value: bytes(each.value) })),
  };
}

/** `subject`: the usual one of the registry; without it the bytes are not written by a schema. */
function Bytes({ title, lines, given, set, subject }) {
  const { format, text } = given;
  const as = (next) => set(next === SCHEMA ? { format: next, text, subject } : { format: next, text });
  return html`<div class="bytes">
    <label>${title} as <select value=${format} onChange=${(event) => as(event.target.value)}>
      ${[...FORMATS, ...(subject ? [SCHEMA] : []), NULL].map((each) => html`<option key=${each} value=${each}>${each}</option>`)}</select></label>
    ${format === NULL
      ? title === "Value" && html`<p class="hint">A tombstone: it deletes its key from a compacted topic.</p>`
      : html`<textarea aria-label=${title} rows=${lines} spellcheck="false" value=${text} onInput=${(event) => set({ ...given, text: event.target.value })}></textarea>`}
    ${format === SCHEMA && html`<label>Subject <input required value=${given.subject} onInput=${(event) => set({ ...given, subject: event.target.value })} /></label>
      <p class="hint">JSON, as the page shows a decoded record. It is checked and written by the subject's newest schema (Avro, or the first message of Protobuf).</p>`}
  </div>`;
}
