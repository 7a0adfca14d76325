// One line for each screen. `nav` and `key` (after g): it is in the navigation. `direct`: it needs etcd and the store.
// The first path that matches is shown.
export const SCREENS = [
  { path: "/", nav: "Overview", key: "o", load: () => import("./overview.js") },
  { path: "/topics", nav: "Topics", key: "t", load: () => import("./topics.js") },
  { path: "/topics/:topic/:partition/:offset", load: () => import("./record.js") },
  { path: "/topics/:topic/:tab?", load: () => import("./topic.js") },
  { path: "/groups", nav: "Groups", key: "g", load: () => import("./groups.js") },
  { path: "/groups/:group", load: () => import("./group.js") },
  { path: "/groups/:group/reset", load: () => import("./group_reset.js") },
  { path: "/access", nav: "Access", key: "a", load: () => import("./access.js") },
  { path: "/access/:tab", load: () => import("./access.js") },
  { path: "/transactions", nav: "Transactions", key: "x", load: () => import("./transactions.js") },
  { path: "/storage", nav: "Storage", key: "d", direct: true, load: () => import("./storage.js") },
  { path: "/cost", nav: "Cost", key: "c", direct: true, load: () => import("./cost.js") },
  { path: "/health", nav: "Health", key: "h", direct: true, load: () => import("./health.js") },
  { path: "/sql", nav: "SQL", key: "s", direct: true, load: () => import("./sql.js") },
];
