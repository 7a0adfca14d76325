import { html, useState } from "../html.js";
import { change } from "../api.js";
import { Failure } from "../parts/failure.js";

export function Login({ done }) {
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const given = new FormData(event.target);
    setBusy(true);
    try {
      await change("POST", "/login", { user: given.get("user"), password: given.get("password") });
      done();
    } catch (problem) {
      setFailure(problem);
      setBusy(false);
    }
  };
  return html`<main class="alone">
    <h1>KafScale</h1>
    <p>Log in with your Kafka user. You see what this user may see.</p>
    <form class="stack" onSubmit=${submit}>
      <label>User <input name="user" autocomplete="username" required autofocus /></label>
      <label>Password <input name="password" type="password" autocomplete="current-password" required /></label>
      <button class="primary" disabled=${busy}>${busy ? "Logging in…" : "Log in"}</button>
    </form>
    ${failure && html`<${Failure} error=${failure} />`}
  </main>`;
}
