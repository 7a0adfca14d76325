// What every screen imports: `html` makes elements. All text becomes text nodes, whatever it contains.
import { h } from "preact";
import htm from "htm";

export { createContext, render } from "preact";
export * from "preact/hooks";
export const html = htm.bind(h);
