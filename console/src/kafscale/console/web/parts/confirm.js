// A dialog before a change, with or without fields. Focus begins on the first field, else on Cancel; Escape closes it.
import { html, useState } from "../html.js";
import { Failure } from "./failure.js";

/** `act(values)`: the change, a promise; `values` are the fields by name. `done(answer)` after it; if the answer is null,
 * the dialog goes on. `word`: what the button says. `mild`: it destroys nothing. */
export function Confirm({ title, word, act, done, close, mild, disabled, children }) {
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const open = (dialog) => dialog && !dialog.open && dialog.showModal();
  const confirm = async (event) => {
    event.preventDefault();
    setBusy(true);
    setFailure(null);
    try {
      const answer = await act(Object.fromEntries(new FormData(event.target)));
      if (answer === null) return setBusy(false);
      close();
      done?.(answer);
    } catch (problem) {
      setFailure(problem);
      setBusy(false);
    }
  };
  return html`<dialog ref=${open} onClose=${close} aria-labelledby="confirm">
    <h2 id="confirm">${title}</h2>
    <form class="stack" onSubmit=${confirm}>
      ${children}
      ${failure && html`<${Failure} error=${failure} />`}
      <div class="tools">
        <button type="button" autofocus onClick=${close}>Cancel</button>
        <button class=${mild ? "primary" : "danger"} disabled=${busy || disabled}>${busy ? "Working…" : word}</button>
      </div>
    </form>
  </dialog>`;
}

/** Names that a person separates by commas. */
export const names = (text) => (text ?? "").split(",").map((each) => each.trim()).filter(Boolean);
