"""Extracts the facts of Kafka's messages from its client jars into tools/wire_schema, once per Kafka release.

A newer jar lacks the oldest versions, so two jars are merged: the newest defines the versions that it knows, the older
one defines the versions below. Then each layout of each jar is compared with the merged one, field by field, so that
the merge cannot change a version. Versions marked unstable are left out, and so are the APIs that only controllers
answer.

    python tools/extract_schema.py kafka-clients-3.9.1.jar kafka-clients-4.3.0.jar

The jars come from Maven Central (org.apache.kafka:kafka-clients); nothing at build or run time needs them.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
HOME = Path(__file__).parent / "wire_schema"
ORIGIN = "Facts of Apache Kafka's message definitions (Apache-2.0), from the client jars {jars}"
FOLDER = "common/message/"
EVERY_VERSION = range(0, 1000)
NOISE = frozenset({"Request", "Response", "Data", "Fetchable", "Creatable", "Deletable"})


def words(name: str) -> list[str]:
    """Splits CamelCase into words."""
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]+|[a-z0-9]+", name)


def short_struct_name(api: str, name: str) -> str:
    """Kafka's name of a nested struct without the words of its message's name."""
    kept = [word for word in words(name) if word not in NOISE and word not in words(api)]
    return "".join(kept) or name


def span(text: str | None, inside: range) -> range:
    """Kafka's notation of versions ("3", "3+", "3-5", "none") cut to those that exist."""
    if text is None or text == "none":
        return range(0)
    first, dash, last = text.rstrip("+").partition("-")
    stop = inside.stop if text.endswith("+") else int(last if dash else first) + 1
    return range(max(int(first), inside.start), min(stop, inside.stop))


def show(versions: range) -> str:
    return f"{versions.start}-{versions.stop - 1}"


def union(one: range, other: range, what: str) -> range:
    """Joins two spans. The notation cannot express a hole between them."""
    if not one or not other:
        return one or other
    low, high = sorted((one, other), key=lambda versions: versions.start)
    if high.start > low.stop:
        raise SystemExit(f"{what}: versions {show(low)} and {show(high)} leave a hole")
    return range(low.start, max(low.stop, high.stop))


class Message:
    """One message of one jar, its fields in our notation."""

    def __init__(self, raw: Json) -> None:
        self.name: str = raw["name"]
        self.for_clients = "broker" in raw.get("listeners", ())
        self.api = re.sub(r"(Request|Response)$", "", self.name)
        self.versions = span(raw["validVersions"], EVERY_VERSION)
        if raw.get("latestVersionUnstable"):
            self.versions = range(self.versions.start, self.versions.stop - 1)
        self.flexible = span(raw.get("flexibleVersions"), EVERY_VERSION)
        self._common = {struct["name"]: struct["fields"] for struct in raw.get("commonStructs", [])}
        self._short = self._short_names(raw)
        self.fields = [self._field(field) for field in raw.get("fields", [])]

    def _short_names(self, raw: Json) -> dict[str, str]:
        names = list(dict.fromkeys([*self._common, *_struct_names(raw.get("fields", []))]))
        short = {name: short_struct_name(self.api, name) for name in names}
        taken = list(short.values())
        return {name: text if taken.count(text) == 1 else name for name, text in short.items()}

    def _field(self, raw: Json) -> Json:
        array, _, kind = raw["type"].rpartition("[]")
        nested = raw.get("fields") or self._common.get(kind)
        field: Json = {
            "name": raw["name"],
            "type": raw["type"].removesuffix(kind) + (self._short[kind] if nested else kind),
            "versions": span(raw.get("versions", "0+"), self.versions),
        }
        if nullable := span(raw.get("nullableVersions"), self.versions):
            field["nullable"] = nullable
        if "tag" in raw:
            field["tagged"] = span(raw["taggedVersions"], self.versions)
            field["tag"] = raw["tag"]
        if "default" in raw:
            field["default"] = raw["default"]
        if nested:
            field["fields"] = [self._field(inner) for inner in nested]
        return field


def _struct_names(fields: Iterable[Json]) -> Iterator[str]:
    for field in fields:
        if "fields" in field:
            yield field["type"].replace("[]", "")
            yield from _struct_names(field["fields"])


def read_jar(path: Path) -> dict[tuple[int, str], Message]:
    """Every request and response of a jar by (API key, kind)."""
    messages = {}
    with zipfile.ZipFile(path) as jar:
        for name in jar.namelist():
            if not name.startswith(FOLDER) or not name.endswith(".json"):
                continue
            raw = json.loads(re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE))
            if raw["type"] in ("request", "response") and raw["validVersions"] != "none":
                messages[raw["apiKey"], raw["type"]] = Message(raw)
    return messages


def clip(field: Json, versions: range) -> Json:
    """A field, limited to `versions`."""
    cut = dict(field)
    for key in ("versions", "nullable", "tagged"):
        if key in field:
            cut[key] = range(max(field[key].start, versions.start), min(field[key].stop, versions.stop))
    if "fields" in field:
        cut["fields"] = [clip(inner, versions) for inner in field["fields"]]
    return cut


def merge(new: list[Json], old: list[Json], what: str) -> list[Json]:
    """New fields in their order, with the fields of the old jar alone at their old positions."""
    ours = {field["name"]: field for field in new}
    merged: list[Json] = []
    waiting = list(new)
    for field in old:
        if field["name"] not in ours:
            merged.append(field)
            continue
        while waiting and waiting[0]["name"] != field["name"]:
            merged.append(waiting.pop(0))
        merged.append(join(waiting.pop(0), field, f"{what}.{field['name']}"))
    return merged + waiting


def join(new: Json, old: Json, what: str) -> Json:
    """One field of both jars."""
    if new["type"] != old["type"] or new.get("tag") != old.get("tag"):
        raise SystemExit(f"{what}: the jars disagree about its type or tag")
    field = dict(new)
    for key in ("versions", "nullable", "tagged"):
        if key in new or key in old:
            field[key] = union(new.get(key, range(0)), old.get(key, range(0)), what)
    if "fields" in new:
        field["fields"] = merge(new["fields"], old["fields"], what)
    return field


def layout(fields: list[Json], version: int) -> list[Any]:
    """The fields on the wire in one version; used to check a merge."""
    return [
        (
            field["name"],
            field["type"],
            version in field.get("nullable", ()),
            field.get("tag") if version in field.get("tagged", ()) else None,
            layout(field.get("fields", []), version),
        )
        for field in fields
        if version in field["versions"]
    ]


def merged(new: Message | None, old: Message | None) -> tuple[range, range, list[Json]]:
    """Versions, flexible versions and fields of a message over both jars."""
    if new is None or old is None:
        only = new or old
        assert only is not None
        return only.versions, only.flexible, only.fields
    below = range(old.versions.start, max(old.versions.start, min(old.versions.stop, new.versions.start)))
    versions = union(new.versions, below, new.name)
    fields = merge(new.fields, [clip(field, below) for field in old.fields], new.name)
    for source, own in ((new, new.versions), (old, below)):
        for version in own:
            assert layout(source.fields, version) == layout(fields, version), (source.name, version)
    return versions, new.flexible, fields


def shown(field: Json) -> Json:
    """A field as JSON, without default values."""
    out = {
        key: show(value) if isinstance(value, range) else value
        for key, value in field.items()
        if value != range(0)
    }
    if "fields" in field:
        out["fields"] = [shown(inner) for inner in field["fields"] if inner["versions"]]
    return out


def write_fields(fields: list[Json], indent: str) -> str:
    """One field, one line."""
    lines = []
    for field in fields:
        inner = field.pop("fields", None)
        text = json.dumps(field)
        if inner is not None:
            text = f'{text[:-1]}, "fields": [\n{write_fields(inner, indent + "  ")}\n{indent}]}}'
        lines.append(indent + text)
    return ",\n".join(lines)


def write_api(key: int, jars: list[dict[tuple[int, str], Message]], origin: str) -> str:
    """The definition file of one API; its name."""
    old, new = jars
    parts = []
    answered = EVERY_VERSION
    for kind in ("request", "response"):
        versions, flexible, fields = merged(new.get((key, kind)), old.get((key, kind)))
        versions = range(max(versions.start, answered.start), min(versions.stop, answered.stop))
        answered = versions  # only requests mark their latest version as unstable
        fields = [clip(field, versions) for field in fields]
        kept = [shown(field) for field in fields if field["versions"]]
        first = flexible.start if flexible else None
        head = f'"versions": "{show(versions)}", "flexible": {json.dumps(first)}'
        parts.append(f'  "{kind}": {{{head}, "fields": [\n{write_fields(kept, "    ")}\n  ]}}')
    message = new[key, "request"]
    head = f'{{\n  "origin": {json.dumps(origin)},\n  "key": {key},\n  "name": "{message.api}",\n'
    (HOME / f"{'_'.join(words(message.api)).lower()}.json").write_text(head + ",\n".join(parts) + "\n}\n")
    return message.api


def main() -> None:
    paths = [Path(argument) for argument in sys.argv[1:]]
    if len(paths) != 2:
        raise SystemExit(__doc__)
    jars = [read_jar(path) for path in paths]
    origin = ORIGIN.format(jars=" and ".join(path.stem for path in paths))
    HOME.mkdir(exist_ok=True)
    keys = sorted(
        key for (key, kind), message in jars[1].items() if kind == "request" and message.for_clients
    )
    names = [write_api(key, jars, origin) for key in keys]
    print(f"{len(names)} APIs in {HOME}")


if __name__ == "__main__":
    main()
