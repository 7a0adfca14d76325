"""The web console: one page application and its JSON API."""
