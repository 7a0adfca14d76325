"use strict";
// Numbers and times as words, and elements. Names are what clients chose: they reach the page as text nodes and attribute
// values alone, never as markup.
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";

// -- words ---------------------------------------------------------------------------------------------------------

const count = (value) => value === null ? "" : value.toLocaleString("en-US");
const short = (value) => {
  if (value === null) return "";
  const size = Math.abs(value);
  if (size < 1000) return size >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
  for (const [unit, name] of [[1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]])
    if (size < unit * 999.5 || unit === 1e12) return (value / unit).toFixed(size < unit * 9.95 ? 1 : 0) + name;
};
const bytes = (value) => value === null ? "" : short(value).replace("k", "K") + "B";
const span = (seconds) => {
  if (seconds === null) return "";
  const sign = seconds < 0 ? "−" : "";
  let left = Math.abs(seconds);
  if (left < 10) return sign + left.toFixed(1).replace(".0", "") + "s";
  left = Math.round(left);
  const parts = [];
  for (const [unit, name] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]]) {
    const some = Math.floor(left / unit);
    left -= some * unit;
    if (some || parts.length) parts.push(some ? some + name : "");
    if (parts.length === 2) break;
  }
  return sign + parts.filter(Boolean).join(" ");
};
// Until retention may delete a record. What is past its time stays until the next run, which may come at any moment.
const until = (seconds) => seconds === 0 ? "any time" : span(seconds);
const deleted = (seconds) => seconds === 0 ? "may be deleted at any time" : `expires in ${span(seconds)}`;
const stamp = (ms) => new Date(ms).toISOString().replace("T", " ").slice(0, 16) + " UTC";
const clock = (ms, withSeconds) => new Date(ms).toISOString().slice(11, withSeconds ? 19 : 16);
const plural = (number, word) => number === 1 ? word : word + "s";
const many = (number, word) => `${count(number)} ${plural(number, word)}`;
const shortly = (number, word) => `${short(number)} ${plural(number, word)}`;

// -- elements ------------------------------------------------------------------------------------------------------

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {}))
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  node.append(...children.filter((child) => child !== null && child !== ""));
  return node;
}
const tip = byId("tip");
function explain(node, text) {
  node.addEventListener("pointermove", (event) => {
    tip.textContent = typeof text === "function" ? text(event) : text;
    tip.hidden = !tip.textContent;
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8)) + "px";
    tip.style.top = (event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18) + "px";
  });
  node.addEventListener("pointerleave", () => { tip.hidden = true; });
  return node;
}
const pill = (status, word) => el("span", { class: `pill s-${status}` }, word || status);
