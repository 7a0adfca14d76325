// Tables. Below 700 px each row is a card (style.css), in which each cell has its column's title.
import { html, useEffect, useRef } from "../html.js";
import { setQuery } from "../router.js";
import { Failure } from "./failure.js";
import { useLoad } from "./load.js";
import { count } from "./format.js";

/** `columns`: {key, title, show(row), numeric, sort, descending, note}. `sorted` (as in the API) and `onSort` make headings
 * buttons. `below(row)`: an element below a row, if it returns one. `wide`: it scrolls in its box instead of becoming cards. */
export function Table({ caption, rows, columns, rowKey, sorted, onSort, below, wide }) {
  return html`<div class="scroll" tabindex=${wide ? 0 : undefined}><table class=${wide ? "wide" : undefined}>
    <caption>${caption}</caption>
    <thead><tr>${columns.map((column) => html`<${Heading} key=${column.key} column=${column} sorted=${sorted} onSort=${onSort} />`)}</tr></thead>
    <tbody>
      ${rows.map((row) => {
        const more = below?.(row);
        return html`<tr key=${row[rowKey]}>${columns.map((column) => html`<td key=${column.key} data-title=${column.title} class=${column.numeric ? "number" : undefined}>${column.show ? column.show(row) : row[column.key]}</td>`)}</tr>
          ${more && html`<tr class="below"><td colspan=${columns.length}>${more}</td></tr>`}`;
      })}
    </tbody>
  </table></div>`;
}

function Heading({ column, sorted, onSort }) {
  const up = sorted === column.key;
  const down = sorted === `-${column.key}`;
  const order = up ? "ascending" : down ? "descending" : undefined;
  const first = column.numeric || column.descending ? `-${column.key}` : column.key;
  const next = up ? `-${column.key}` : down ? column.key : first;
  const title = onSort && column.sort
    ? html`<button type="button" class="sort" onClick=${() => onSort(next)}>${column.title}<span aria-hidden="true">${up ? " ▲" : down ? " ▼" : ""}</span></button>`
    : column.title;
  return html`<th scope="col" title=${column.note} aria-sort=${order} class=${column.numeric ? "number" : undefined}>${title}</th>`;
}

/** A list of the API with search, order and pages, all in the address. `query`: of the screen. `name`: the column that
 * is sorted by default. `filters(data)`: elements beside the search. `values`: more of the query for the API. `every`:
 * as in `useLoad`. `about(data)`: an element above the table. */
export function List({ path, query, values, columns, search, name, rowKey, empty, hiddenNote, filters, below, every, about }) {
  const asked = { q: query.q, sort: query.sort, page: query.page, hidden: query.hidden, ...values };
  const { data, error, loading, reload } = useLoad(path, asked, every);
  return html`<div aria-busy=${loading}>
    <div class="tools">
      <${Search} label=${search} value=${query.q ?? ""} />
      ${filters?.(data)}
      <button type="button" class="quiet" onClick=${reload}>Refresh</button>
    </div>
    ${error && html`<${Failure} error=${error} retry=${reload} />`}
    ${data && about?.(data)}
    ${data && (data.items.length
      ? html`<${Table} caption=${`${count(data.total)} in all`} rows=${data.items} columns=${columns} rowKey=${rowKey} below=${below}
          sorted=${query.sort ?? name} onSort=${(sort) => setQuery({ sort, page: "" })} />`
      : html`<p class="hint">${query.q ? "Nothing has this in its name." : empty}</p>`)}
    ${data && html`<${Pages} data=${data} hiddenNote=${hiddenNote} query=${query} />`}
  </div>`;
}

function Pages({ data, hiddenNote, query }) {
  const to = (page) => () => setQuery({ page: page === 1 ? "" : page });
  return html`<div class="pages">
    ${data.pages > 1 && html`
      <button type="button" disabled=${data.page === 1} onClick=${to(data.page - 1)}>‹ Previous</button>
      <span>page ${count(data.page)} of ${count(data.pages)}</span>
      <button type="button" disabled=${data.page === data.pages} onClick=${to(data.page + 1)}>Next ›</button>`}
    ${hiddenNote && (data.hidden > 0 || query.hidden === "1") && html`<label><input type="checkbox" checked=${query.hidden === "1"}
      onChange=${(event) => setQuery({ hidden: event.target.checked ? "1" : "", page: "" })} /> show ${hiddenNote}</label>`}
  </div>`;
}

/** Writes `q` into the address after a pause in typing. */
export function Search({ label, value }) {
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  const typed = (event) => {
    const q = event.target.value;
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setQuery({ q, page: "" }, { replace: true }), 200);
  };
  return html`<input type="search" aria-label=${label} placeholder=${`${label}  ( / )`} value=${value} onInput=${typed} />`;
}
