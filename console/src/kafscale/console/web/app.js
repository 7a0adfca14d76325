// The frame around the screens: navigation, login, theme, keys.
import { html, render, useCallback, useEffect, useState } from "./html.js";
import { change, get, onLoggedOut } from "./api.js";
import { Link, go, match, usePlace } from "./router.js";
import { Failure } from "./parts/failure.js";
import { MeContext } from "./parts/me.js";
import { Settings } from "./parts/settings.js";
import { SCREENS } from "./screens/index.js";
import { Login } from "./screens/login.js";

function App() {
  const [me, setMe] = useState(null);
  const [failure, setFailure] = useState(null);
  const load = useCallback(() => {
    setFailure(null);
    get("/me").then(setMe, setFailure);
  }, []);
  useEffect(load, []);
  useEffect(() => onLoggedOut(load), []);
  const logOut = () => change("DELETE", "/login").then(load, setFailure);
  if (failure) return html`<main class="alone"><${Failure} error=${failure} retry=${load} /></main>`;
  if (!me) return html`<main class="alone" aria-busy="true"><p>Loading…</p></main>`;
  if (!me.logged_in) return html`<${Login} done=${load} />`;
  return html`<${MeContext.Provider} value=${me}><${Frame} me=${me} logOut=${logOut} /></${MeContext.Provider}>`;
}

function Frame({ me, logOut }) {
  const place = usePlace();
  const [help, setHelp] = useState(false);
  useKeys(() => setHelp(true));
  const found = SCREENS.map((screen) => [screen, match(screen.path, place.path)]).find(([, params]) => params);
  const shown = found?.[0];
  const section = shown?.nav ? shown : SCREENS.find((each) => each.nav && each.path !== "/" && place.path.startsWith(`${each.path}/`));
  return html`
    <a class="skip" href="#content">Skip to the content</a>
    <header class="top">
      <${Link} href="/" class="brand">KafScale</${Link}>
      <span class="cluster" title="The cluster's address">${me.bootstrap}</span>
      ${me.read_only && html`<span class="badge">read-only</span>`}
      <span class="space"></span>
      <${Settings} />
      ${me.user && html`<span class="user" title=${me.mechanism}>${me.user}</span>`}
      ${me.mode === "personal" && html`<button type="button" class="quiet" onClick=${logOut}>Log out</button>`}
    </header>
    <nav class="side" aria-label="Screens">
      ${SCREENS.filter((each) => each.nav && (me.direct || !each.direct)).map(
        (each) => html`<${Link} key=${each.path} href=${each.path} aria-current=${each === section ? "page" : undefined}>${each.nav}</${Link}>`,
      )}
    </nav>
    <main id="content" tabindex="-1">
      ${found ? html`<${Screen} key=${shown.path} screen=${shown} params=${found[1]} query=${place.query} />` : html`<${Missing} />`}
    </main>
    ${help && html`<${Help} close=${() => setHelp(false)} />`}
  `;
}

/** Each screen is a module whose default export is a component with `params` (of the path) and `query`. */
function Screen({ screen, params, query }) {
  const [loaded, setLoaded] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    screen.load().then((module) => setLoaded(() => module.default), setFailure);
  }, [screen]);
  if (failure) return html`<${Failure} error=${failure} />`;
  return loaded ? html`<${loaded} params=${params} query=${query} />` : html`<p aria-busy="true">Loading…</p>`;
}

function Missing() {
  return html`<h1>No such page</h1><p><${Link} href="/">Back to the overview</${Link}></p>`;
}

/** `/` focuses the search, `g t` goes to topics, `?` shows help. Not while somebody types, or a dialog is open: for some
 * milliseconds a closed one still has the focus. */
function useKeys(showHelp) {
  useEffect(() => {
    let began = 0;
    const pressed = (event) => {
      const typing = event.target.closest?.("input, textarea, select, dialog[open]");
      if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
      const target = Date.now() - began < 1_500 && SCREENS.find((each) => each.key === event.key);
      began = 0;
      if (target) go(target.path);
      else if (event.key === "g") began = Date.now();
      else if (event.key === "?") showHelp();
      else if (event.key === "/") document.querySelector("input[type=search]")?.focus();
      else return;
      event.preventDefault();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

function Help({ close }) {
  const open = (dialog) => dialog && !dialog.open && dialog.showModal();
  return html`<dialog ref=${open} onClose=${close} aria-labelledby="help">
    <h2 id="help">Keys</h2>
    <dl class="keys">
      <dt><kbd>/</kbd></dt><dd>search</dd>
      ${SCREENS.filter((each) => each.key).map((each) => html`<dt><kbd>g</kbd> <kbd>${each.key}</kbd></dt><dd>${each.nav}</dd>`)}
      <dt><kbd>?</kbd></dt><dd>this list</dd>
    </dl>
    <form method="dialog"><button autofocus>Close</button></form>
  </dialog>`;
}

render(html`<${App} />`, document.body);
