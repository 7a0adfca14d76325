// Answers that outlive their screen, while the tab lives: who comes back finds them as they were.
import { useMe } from "./me.js";

const KEPT_MAX = 4;
const SHELVES = new WeakMap(); // by login: the next person at this tab sees none of them

/** Of this login: a Map by name. */
export function useShelf() {
  const me = useMe();
  if (!SHELVES.has(me)) SHELVES.set(me, new Map());
  return SHELVES.get(me);
}

/** Keeps the newest few, and no failure. */
export function keep(shelf, name, answer) {
  shelf.delete(name);
  if (!answer.error) shelf.set(name, answer);
  if (shelf.size > KEPT_MAX) shelf.delete(shelf.keys().next().value);
}
