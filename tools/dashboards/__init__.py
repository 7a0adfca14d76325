"""The dashboards as rows; `gen_dashboards.py` makes Grafana's JSON of them."""
