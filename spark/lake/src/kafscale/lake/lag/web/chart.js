// -- lines over time -----------------------------------------------------------------------------------------------

const LEVELS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+";
const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE;
const TIME_STEPS = [SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE,
  30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 4 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];
const RANGES = [[0, "all"], [6 * HOUR, "6 h"], [HOUR, "1 h"], [15 * MINUTE, "15 min"]];
const LABEL_WIDTH = 70;

function spark(levels, width, height, label) {
  const known = [...levels].map((level) => LEVELS.indexOf(level));
  const last = known.length - 1;
  const point = (level, index) => `${index} ${(62 - level).toFixed(0)}`;
  const first = known.findIndex((level) => level >= 0);
  const box = svg("svg", { class: "spark", width, height, viewBox: `0 -2 ${Math.max(1, last)} 66`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (first < 0) return box;
  const line = known.slice(first).map((level, index) => point(level, index + first)).join("L");
  box.append(svg("path", { class: "area", d: `M${first} 62L${line}L${last} 62Z` }), svg("path", { d: `M${line}L${point(known[last], last)}` }));
  return box;
}

// The chart of `data` in the elements #over-time; drawn again when its controls or the window's width change.
function chart(data) {
  const shown = data.groups.filter((group) => group.series !== null);
  byId("over-time").hidden = !shown.length || data.history === null;
  if (byId("over-time").hidden) return;
  const behind = data.groups.filter((group) => group.peak > 0).length;
  byId("chart-about").textContent = shown.length === behind ? ""
    : shown.length === 1 ? "the group with the highest peak" : `the ${shown.length} groups with the highest peaks`;
  byId("legend").replaceChildren(...shown.map((group, index) => {
    const key = el("i", {});
    key.style.background = `var(--c${index})`;
    return el("span", {}, key, group.name);
  }));
  const whole = (data.points - 1) * data.step;
  const ranges = RANGES.filter(([length]) => length < whole);
  const chosen = byId("range").value;
  byId("range").replaceChildren(...ranges.map(([length, name]) => el("option", { value: length }, length ? name : `all: ${span(whole / 1000)}`)));
  byId("range").value = ranges.some(([length]) => String(length) === chosen) ? chosen : "0";
  draw(data, shown);
}

function draw(data, shown) {
  const place = byId("chart");
  const length = Number(byId("range").value) || Infinity;
  const from = Math.max(0, data.points - 1 - Math.floor(length / data.step));
  place.replaceChildren(lines(data, shown, from, place.clientWidth, 230, byId("log-scale").checked));
}

function lines(data, groups, from, width, height, logarithmic) {
  const left = 46, right = 8, top = 8, bottom = 22, points = data.points - from;
  const begin = data.start + from * data.step, length = (points - 1) * data.step;
  const series = groups.map((group) => group.series.slice(from));
  const peak = Math.max(1, ...series.flat());
  const scale = logarithmic ? (value) => Math.log10(value + 1) / Math.log10(peak + 1) : (value) => value / peak;
  const x = (index) => left + index * (width - left - right) / Math.max(1, points - 1);
  const y = (value) => top + (1 - scale(value)) * (height - top - bottom);
  const box = svg("svg", { width, height, role: "img", "aria-label": "Unread records of groups over time; the rows below have the numbers" });
  for (const value of ticks(peak, logarithmic))
    box.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }), svg("text", { x: left - 7, y: y(value) + 4, "text-anchor": "end" }, short(value)));
  const every = TIME_STEPS.find((step) => length / step <= width / LABEL_WIDTH) || TIME_STEPS[TIME_STEPS.length - 1];
  for (let at = Math.ceil(begin / every) * every; at <= begin + length; at += every) {
    const place = x((at - begin) / data.step);
    box.append(svg("text", { x: Math.min(place, width - right), y: height - 5, "text-anchor": place > width - right - 18 ? "end" : "middle" }, clock(at, every < MINUTE)));
  }
  series.forEach((values, number) => {
    const known = values.map((value, index) => value < 0 ? null : `${x(index).toFixed(1)} ${y(value).toFixed(1)}`).filter(Boolean);
    if (!known.length) return;
    known.push(known[known.length - 1]);  // a line of one point is a dot
    const path = svg("path", { d: "M" + known.join("L"), fill: "none", "stroke-width": 1.8, "stroke-linejoin": "round", "stroke-linecap": "round" });
    path.style.stroke = `var(--c${number})`;
    box.append(path);
  });
  const rule = svg("line", { class: "rule", y1: top, y2: height - bottom, visibility: "hidden" });
  const field = svg("rect", { x: left, y: top, width: Math.max(1, width - left - right), height: height - top - bottom, fill: "transparent" });
  explain(field, (event) => {
    const at = Math.round((event.clientX - box.getBoundingClientRect().left - left) / Math.max(1, width - left - right) * (points - 1));
    const index = Math.max(0, Math.min(points - 1, at));
    rule.setAttribute("x1", x(index));
    rule.setAttribute("x2", x(index));
    rule.setAttribute("visibility", "visible");
    const told = groups.map((group, number) => [series[number][index], group.name]).filter(([value]) => value >= 0);
    return [stamp(begin + index * data.step), ...told.map(([value, name]) => `${count(value)}  ${name}`)].join("\n");
  });
  field.addEventListener("pointerleave", () => rule.setAttribute("visibility", "hidden"));
  box.append(rule, field);
  return box;
}

function ticks(peak, logarithmic) {
  if (logarithmic) {
    const found = [0];
    for (let value = 10; value <= peak; value *= 10) found.push(value);
    return found.length > 6 ? found.filter((_, index) => index % 2 === 0) : found;
  }
  const rough = peak / 4, unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((factor) => factor * unit).find((each) => each >= rough));
  const found = [];
  for (let value = 0; value <= peak; value += step) found.push(value);
  return found;
}

// Logarithmic from the start if one line would hide the others.
function scaleOf(data) {
  const peaks = data.groups.filter((group) => group.series !== null).map((group) => Math.max(...group.series));
  return peaks.length > 1 && Math.max(...peaks) > 30 * Math.min(...peaks);
}
