"""The console's own lines of the audit log (law S8): what was read from etcd and the store, by whom, from where.

The front door logs everything else, under the client id `kafscale-console`. A line is a JSON object on standard error,
in the form of the services' audit lines; nothing is summed or left out. The server writes it for each route whose row
has `audit`, when the handler has let the question in and before the answer's first byte is sent.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import orjson
from kafscale.runtime.log_storms import AUDIT
from kafscale.runtime.log_writer import LogWriter
from kafscale.runtime.redaction import printable

TEXT_CHARS_MAX: Final = 4_096


class Audit:
    def __init__(self, writer: LogWriter | None = None) -> None:
        self._writer = writer or LogWriter()

    def read(self, page: str, user: str | None, address: str, what: dict[str, str]) -> None:
        """`page`: the path of the route's row. `what`: the question, for example the text of a query."""
        line = {
            "event": "console read",
            "level": "info",
            "logger": AUDIT,
            "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "page": page,
            "principal": f"User:{user or 'ANONYMOUS'}",
            "address": address,
        }
        shown = {name: printable(value[:TEXT_CHARS_MAX]) for name, value in what.items()}
        self._writer.write(orjson.dumps(line | shown) + b"\n")

    def close(self) -> None:
        self._writer.flush()
