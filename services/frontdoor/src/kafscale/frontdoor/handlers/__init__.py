"""One module for each API: what a request of it needs from the front door, and how it is refused."""
