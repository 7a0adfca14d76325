// Requests to the console's API. A failure is a Problem with a sentence for the person.
const API = "/api/v1";

export class Problem extends Error {
  constructor(status, error, sentence) {
    super(sentence);
    this.status = status;
    this.error = error;
  }
}

const awaited = new Set();

/** Calls `action` when an answer says that nobody is logged in. */
export function onLoggedOut(action) {
  awaited.add(action);
  return () => awaited.delete(action);
}

/** `/topics/{name}/configs` with every part encoded: path`/topics/${name}/configs`. */
export function path(texts, ...names) {
  return texts.reduce((whole, text, at) => whole + encodeURIComponent(names[at - 1]) + text);
}

/** The query's empty values are left out. */
export function query(values) {
  const kept = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return kept.length ? `?${new URLSearchParams(kept)}` : "";
}

async function ask(method, where, { body, signal } = {}) {
  const options = { method, signal, credentials: "same-origin", headers: { Accept: "application/json" } };
  if (method !== "GET") {
    options.headers["Content-Type"] = "application/json";
    options.headers["X-KafScale-Console"] = "1";
    options.body = JSON.stringify(body ?? {});
  }
  let answer;
  try {
    answer = await fetch(API + where, options);
  } catch (failed) {
    if (failed.name === "AbortError") throw failed;
    throw new Problem(0, "no_answer", "The console does not answer. Is it still running?");
  }
  if (answer.ok) return answer;
  const said = await answer.json().catch(() => ({}));
  if (answer.status === 401 && said.error === "no_login") awaited.forEach((action) => action());
  throw new Problem(answer.status, said.error ?? "refused", said.sentence ?? `Status ${answer.status}.`);
}

export async function get(where, values = {}, signal = undefined) {
  return (await ask("GET", where + query(values), { signal })).json();
}

/** POST, PUT, PATCH and DELETE. */
export async function change(method, where, body = undefined, signal = undefined) {
  return (await ask(method, where, { body, signal })).json();
}

/** An answer that goes on: calls `onItem` for each line. Returns at its end. Throws a Problem, also for a last line
 * that is one. With a `body` it is a POST. */
export async function lines(where, { values = {}, body, signal, onItem }) {
  const answer = await ask(body === undefined ? "GET" : "POST", where + query(values), { body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) {
      const item = JSON.parse(line);
      if (item.error && item.sentence) throw new Problem(200, item.error, item.sentence);
      onItem(item);
    }
  }
}
