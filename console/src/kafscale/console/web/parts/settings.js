// What a person chooses for this browser: theme, and UTC or local time.
import { html, useEffect, useState } from "../html.js";

const THEMES = ["system", "light", "dark"];
const listeners = new Set();

function read(name, fallback) {
  try {
    return localStorage.getItem(name) ?? fallback;
  } catch {
    return fallback; // a browser that keeps nothing
  }
}

const chosen = { theme: read("theme", "system"), zone: read("zone", "local") };

function choose(name, value) {
  chosen[name] = value;
  try {
    localStorage.setItem(name, value);
  } catch {
    // a browser that keeps nothing; the choice holds for this page
  }
  apply();
  listeners.forEach((listener) => listener({ ...chosen }));
}

function apply() {
  if (chosen.theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen.theme;
}

apply();

/** {theme, zone, utc}. */
export function useSettings() {
  const [now, setNow] = useState({ ...chosen });
  useEffect(() => {
    listeners.add(setNow);
    return () => listeners.delete(setNow);
  }, []);
  return { ...now, utc: now.zone === "UTC" };
}

export function Settings() {
  const { theme, zone } = useSettings();
  return html`
    <select aria-label="Theme" value=${theme} onChange=${(event) => choose("theme", event.target.value)}>
      ${THEMES.map((each) => html`<option key=${each} value=${each}>${each}</option>`)}
    </select>
    <select aria-label="Time zone" value=${zone} onChange=${(event) => choose("zone", event.target.value)}>
      <option value="local">local time</option><option value="UTC">UTC</option>
    </select>`;
}
