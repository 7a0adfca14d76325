// Who looks, and what this console can do: the answer of /me.
import { createContext, useContext } from "../html.js";

export const MeContext = createContext(null);
export const useMe = () => useContext(MeContext);
