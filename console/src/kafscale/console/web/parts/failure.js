// An error as a sentence, with the way to go on.
import { html } from "../html.js";

const TITLES = { 401: "Not logged in", 403: "Not allowed", 404: "Not found", 503: "No answer" };

export function Failure({ error, retry }) {
  return html`<div class="failure" role="alert">
    <strong>${TITLES[error.status] ?? "This did not work"}</strong>
    <p>${error.message}</p>
    ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </div>`;
}
