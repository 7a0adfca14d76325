// A topic's tabs. Each is a module of its own; the first is shown at /topics/NAME.
import { html, useEffect, useState } from "../html.js";
import { path } from "../api.js";
import { Link } from "../router.js";
import { Failure } from "../parts/failure.js";

const TABS = [
  { tab: "records", title: "Records", load: () => import("./topic_records.js") },
  { tab: "search", title: "Search", load: () => import("./topic_search.js") },
  { tab: "partitions", title: "Partitions", load: () => import("./topic_partitions.js") },
  { tab: "configs", title: "Configs", load: () => import("./topic_configs.js") },
  { tab: "groups", title: "Groups", load: () => import("./topic_groups.js") },
  { tab: "change", title: "Change", load: () => import("./topic_change.js") },
];

export default function Topic({ params, query }) {
  const { topic } = params;
  const chosen = TABS.find((each) => each.tab === params.tab) ?? (params.tab ? null : TABS[0]);
  return html`
    <p class="crumbs"><${Link} href="/topics">Topics</${Link}></p>
    <h1>${topic}</h1>
    <nav class="tabs" aria-label=${`Topic ${topic}`}>
      ${TABS.map((each, at) => html`<${Link} key=${each.tab} aria-current=${each === chosen ? "page" : undefined}
        href=${at === 0 ? path`/topics/${topic}` : path`/topics/${topic}/${each.tab}`}>${each.title}</${Link}>`)}
    </nav>
    ${chosen ? html`<${Tab} key=${`${topic} ${chosen.tab}`} load=${chosen.load} topic=${topic} query=${query} />` : html`<p>A topic has no such tab.</p>`}
  `;
}

function Tab({ load, ...more }) {
  const [loaded, setLoaded] = useState(null);
  const [failure, setFailure] = useState(null);
  useEffect(() => {
    load().then((module) => setLoaded(() => module.default), setFailure);
  }, [load]);
  if (failure) return html`<${Failure} error=${failure} />`;
  return loaded ? html`<${loaded} ...${more} />` : html`<p aria-busy="true">Loading…</p>`;
}
