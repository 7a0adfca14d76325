// Where the page is: the address has the whole state of a screen, so a link shows the same to everyone.
import { html, useEffect, useState } from "./html.js";
import { query } from "./api.js";

const listeners = new Set();

function here() {
  return { path: location.pathname, query: Object.fromEntries(new URLSearchParams(location.search)) };
}

function changed() {
  const place = here();
  listeners.forEach((listener) => listener(place));
}

addEventListener("popstate", changed);

export function go(href) {
  history.replaceState({ ...history.state, y: scrollY }, "");
  history.pushState(null, "", href);
  changed();
  scrollTo(0, 0);
}

/** For a screen that has its content later than the browser expects it: to where the person left it. */
export function scrollBack() {
  scrollTo(0, history.state?.y ?? 0);
}

/** Changes values of the query; empty ones go. `replace`: without a step in the browser's history. */
export function setQuery(values, { replace = false } = {}) {
  const href = location.pathname + query({ ...here().query, ...values });
  history[replace ? "replaceState" : "pushState"](null, "", href);
  changed();
}

export function usePlace() {
  const [place, setPlace] = useState(here);
  useEffect(() => {
    listeners.add(setPlace);
    setPlace(here());
    return () => listeners.delete(setPlace);
  }, []);
  return place;
}

/** The parameters of `/topics/:topic/:tab?` in a path; null if it is another. */
export function match(pattern, path) {
  const wanted = pattern.split("/").slice(1);
  const given = path.replace(/\/$/, "").split("/").slice(1);
  if (given.length > wanted.length) return null;
  const found = {};
  for (const [at, part] of wanted.entries()) {
    const name = part.replace(/^:|\?$/g, "");
    if (given[at] === undefined) {
      if (part !== "" && !part.endsWith("?")) return null;
    } else if (part.startsWith(":")) {
      try {
        found[name] = decodeURIComponent(given[at]);
      } catch {
        return null;
      }
    } else if (part !== given[at]) return null;
  }
  return found;
}

export function Link({ href, children, ...more }) {
  const follow = (event) => {
    if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    go(href);
  };
  return html`<a href=${href} onClick=${follow} ...${more}>${children}</a>`;
}
