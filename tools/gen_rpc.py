"""Generates Python from proto/.

The path of a proto file is its import path, so protoc's own imports are right and nothing is
rewritten afterwards. Each tree below proto/kafscale has one member that carries its output.
"""

from __future__ import annotations

import importlib.resources
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from grpc_tools import protoc

from tools.generated import ROOT, write_or_check

PROTO = ROOT / "proto"
# tree under proto/ -> (output root, with gRPC stubs). etcd is called by method name without stubs.
TREES = {
    "kafscale/rpc": ("libs/runtime/src", True),
    "kafscale/store": ("libs/storage/src", False),
    "kafscale/etcd": ("libs/storage/src", False),
}
# Checked by protoc, but no code is written: the frames of the streams are raw bytes, read by runtime/stream. A unary
# service between services goes into a separate file next to it; this script generates its messages and stubs.
DOCUMENTS = frozenset({"kafscale/rpc/v1/stream.proto"})


def run_protoc(sources: list[Path], out: Path, *, stubs: bool) -> None:
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    args = ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
    if stubs:
        args.append(f"--grpc_python_out={out}")
    if protoc.main([*args, *(str(p.relative_to(PROTO)) for p in sources)]) != 0:
        raise SystemExit("gen_rpc: protoc failed, see above")


def generate(out: Path) -> dict[Path, str]:
    """All generated files, by their path in the repository."""
    files: dict[Path, str] = {}
    for tree, (member, stubs) in TREES.items():
        sources = sorted((PROTO / tree).rglob("*.proto"))
        if not sources:
            raise SystemExit(f"gen_rpc: no proto files under {tree}")
        part = out / tree
        part.mkdir(parents=True)
        run_protoc(sources, part, stubs=stubs)
        for path in sorted(p for p in part.rglob("*") if p.is_file()):
            place = path.relative_to(part)
            if f"{place.parent.as_posix()}/{place.name.partition('_pb2')[0]}.proto" not in DOCUMENTS:
                files[ROOT / member / place] = path.read_text()
    return files


def checked_in() -> Iterator[Path]:
    for tree, (member, _) in TREES.items():
        yield from (p for p in (ROOT / member / tree).rglob("*_pb2*.py*") if p.suffix != ".pyc")


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(Path(scratch))
    return write_or_check(files, checked_in())


if __name__ == "__main__":
    sys.exit(main())
