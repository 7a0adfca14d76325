// Lag over time, drawn as SVG. Its numbers are always also in the page as text.
import { html } from "../html.js";
import { count, time } from "./format.js";

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+";

/** A small line of the API's letters; `.` is not known. */
export function Spark({ line }) {
  const levels = [...(line ?? "")].map((letter) => LEVELS.indexOf(letter));
  if (levels.filter((level) => level >= 0).length < 2) return null;
  const points = pathOf(levels.map((level) => (level < 0 ? null : level / (LEVELS.length - 1))), 90, 18);
  return html`<svg class="spark" viewBox="0 -1 90 20" width="90" height="20" aria-hidden="true"><path d=${points} /></svg>`;
}

/** `values` over time, null is not known; with the highest value and the first and last moment as text. */
export function Chart({ title, history, utc }) {
  const known = history?.values.filter((value) => value !== null) ?? [];
  if (known.length < 2) return html`<p class="hint">There is no history yet: <code>upkeep</code> takes a sample every 30 seconds.</p>`;
  const peak = known.reduce((most, value) => Math.max(most, value), 1);
  const last = history.start_ms + history.step_ms * (history.values.length - 1);
  const points = pathOf(history.values.map((value) => (value === null ? null : value / peak)), 600, 100);
  return html`<figure class="chart">
    <figcaption>${title}: ${count(known.at(-1))} now, ${count(peak)} at most</figcaption>
    <svg viewBox="0 -2 600 104" preserveAspectRatio="none" role="img" aria-label=${`${title} over time`}><path d=${points} /></svg>
    <div class="ends"><span>${time(history.start_ms, utc)}</span><span>${time(last, utc)}</span></div>
  </figure>`;
}

/** Heights from 0 to 1. Gaps where nothing is known. */
function pathOf(heights, width, height) {
  let drawn = false;
  return heights
    .map((value, at) => {
      if (value === null) {
        drawn = false;
        return "";
      }
      const step = `${drawn ? "L" : "M"}${((at * width) / Math.max(1, heights.length - 1)).toFixed(1)} ${((1 - value) * height).toFixed(1)}`;
      drawn = true;
      return step;
    })
    .join("");
}
