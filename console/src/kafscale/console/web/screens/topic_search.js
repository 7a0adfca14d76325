import { html } from "../html.js";
import { Search } from "../parts/search.js";

export default function TopicSearch({ topic, query }) {
  return html`<${Search} topic=${topic} query=${query} />`;
}
