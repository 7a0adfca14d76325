"""`python -m kafscale.runtime.healthcheck /readyz`: fetches an HTTP page of this container's service; exits 0 on 200.

For health checks, and for `/metrics` in a container without curl. It connects to the port of KAFSCALE_HTTP_LISTEN on
loopback with a plain socket: a check that runs every few seconds must not import an HTTP client.
"""

import os
import socket
import sys
from typing import Final

TIMEOUT_S: Final = 4.0
BYTES_MAX: Final = 16 << 20
PORT_DEFAULT: Final = "8000"


def page(port: int, path: str) -> tuple[int, bytes]:
    """Status and body. Raises OSError if nothing answers in time, and ValueError if the answer is not HTTP."""
    chunks: list[bytes] = []
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        while (chunk := connection.recv(65_536)) and sum(map(len, chunks)) < BYTES_MAX:
            chunks.append(chunk)
    head, _, body = b"".join(chunks).partition(b"\r\n\r\n")
    words = head.split(b" ", 2)
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError(f"port {port} does not speak HTTP")
    return int(words[1]), body


def main() -> int:
    path = sys.argv[1] if len(sys.argv) > 1 else "/readyz"
    port = int(os.environ.get("KAFSCALE_HTTP_LISTEN", "").rpartition(":")[2] or PORT_DEFAULT)
    try:
        status, body = page(port, path)
    except (OSError, ValueError) as trouble:
        sys.stderr.write(f"no page {path} at port {port}: {trouble}\n")
        return 1
    sys.stdout.buffer.write(body)
    return 0 if status == 200 else 1


if __name__ == "__main__":
    sys.exit(main())
