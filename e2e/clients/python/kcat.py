"""kcat as a client of the matrix: the same arguments, passed on to the real program.

kcat takes no create time and one set of headers for all records, so its headers carry no number.
"""

from __future__ import annotations

import json
import subprocess
import sys

from record import Args, parse, show

SEPARATOR = "|"


def produce(a: Args) -> None:
    lines = b"\n".join(a.key(i) + SEPARATOR.encode() + a.value(i) for i in range(a.count)) + b"\n"
    command = ["kcat", "-P", "-b", a.bootstrap, "-t", a.topic, "-K", SEPARATOR, "-H", f"client={a.name}"]
    command += ["-X", "acks=all", "-X", "enable.idempotence=true", "-X", f"compression.codec={a.codec}", "-q"]
    sys.exit(subprocess.run(command, input=lines, timeout=120).returncode)


def consume(a: Args) -> None:
    command = ["kcat", "-C", "-b", a.bootstrap, "-t", a.topic, "-o", "beginning", "-c", str(a.count), "-q"]
    # -J prints text, and every key and value of the matrix is ASCII.
    done = subprocess.run([*command, "-J"], capture_output=True, timeout=120)
    for line in done.stdout.splitlines():
        found = json.loads(line)
        flat = found.get("headers", [])
        headers = [(flat[n], flat[n + 1].encode()) for n in range(0, len(flat), 2)]
        key, value = found["key"].encode(), found["payload"].encode()
        show(found["partition"], found["offset"], found["ts"], key, value, headers)
    sys.stderr.buffer.write(done.stderr)
    sys.exit(done.returncode)


args = parse()
produce(args) if args.mode == "produce" else consume(args)
