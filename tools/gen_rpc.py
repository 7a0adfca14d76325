"""Generates Python from proto/: `tools/gen_rpc.py` writes, `tools/gen_rpc.py --check` compares.

The path of a proto file is its import path, so protoc's own imports are right and nothing is
rewritten afterwards. Each tree below proto/kafscale has one member that carries its output.
"""

from __future__ import annotations

import importlib.resources
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
# tree under proto/ -> (output root, with gRPC stubs). etcd is called by method name without stubs.
TREES = {
    "kafscale/rpc": ("libs/rpc/src", True),
    "kafscale/store": ("libs/storage/src", False),
    "kafscale/etcd": ("libs/storage/src", False),
}


def run_protoc(sources: list[Path], out: Path, *, stubs: bool) -> None:
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    args = ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={out}", f"--pyi_out={out}"]
    if stubs:
        args.append(f"--grpc_python_out={out}")
    if protoc.main([*args, *(str(p.relative_to(PROTO)) for p in sources)]) != 0:
        raise SystemExit("gen_rpc: protoc failed, see above")


def generate(out: Path) -> dict[Path, bytes]:
    """All generated files, by their path in the repository."""
    files: dict[Path, bytes] = {}
    for tree, (member, stubs) in TREES.items():
        sources = sorted((PROTO / tree).rglob("*.proto"))
        if not sources:
            raise SystemExit(f"gen_rpc: no proto files under {tree}")
        part = out / tree
        part.mkdir(parents=True)
        run_protoc(sources, part, stubs=stubs)
        for path in sorted(p for p in part.rglob("*") if p.is_file()):
            files[Path(member) / path.relative_to(part)] = path.read_bytes()
    return files


def checked_in() -> set[Path]:
    roots = {(Path(member) / tree) for tree, (member, _) in TREES.items()}
    return {
        p.relative_to(ROOT) for root in roots for p in (ROOT / root).rglob("*_pb2*.py*") if p.suffix != ".pyc"
    }


def main(argv: list[str]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        files = generate(Path(scratch))
    stale = sorted(checked_in() - files.keys())
    if "--check" in argv:
        changed = sorted(
            p for p, text in files.items() if not (ROOT / p).is_file() or (ROOT / p).read_bytes() != text
        )
        for path in [*changed, *stale]:
            print(f"gen_rpc: {path} is not what proto/ says; run tools/gen_rpc.py")
        return 1 if changed or stale else 0
    for path, text in files.items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_bytes(text)
    for path in stale:
        (ROOT / path).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
