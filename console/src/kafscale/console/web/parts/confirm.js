// A dialog before something that cannot be undone. Focus begins on Cancel; Escape closes it.
import { html, useState } from "../html.js";
import { Failure } from "./failure.js";

/** `act()`: the change, a promise. `done(answer)` after it. `word`: what the button says. */
export function Confirm({ title, word, act, done, close, children }) {
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const open = (dialog) => dialog && !dialog.open && dialog.showModal();
  const confirm = async () => {
    setBusy(true);
    setFailure(null);
    try {
      const answer = await act();
      close();
      done?.(answer);
    } catch (problem) {
      setFailure(problem);
      setBusy(false);
    }
  };
  return html`<dialog ref=${open} onClose=${close} aria-labelledby="confirm">
    <h2 id="confirm">${title}</h2>
    ${children}
    ${failure && html`<${Failure} error=${failure} />`}
    <div class="tools">
      <button type="button" autofocus onClick=${close}>Cancel</button>
      <button type="button" class="danger" disabled=${busy} onClick=${confirm}>${busy ? "Working…" : word}</button>
    </div>
  </dialog>`;
}
