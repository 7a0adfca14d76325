"""One module for each API, named after it: its registration `API`, and what only this API needs."""
