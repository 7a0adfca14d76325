"""Custom resources against the definitions that their projects publish (`k8s/schemas`), as strictly as Kubernetes' own
kinds: what a definition does not name is refused, where an API server would drop it in silence.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, Final

import jsonschema
import yaml

SCHEMAS: Final = Path(__file__).parent.parent.parent / "k8s" / "schemas"
Schema = dict[str, Any]


def faults_of(manifest: dict[str, Any]) -> list[str] | None:
    """What its definition says against it; None when there is no definition of such a kind."""
    schema = definitions().get((manifest["apiVersion"], manifest["kind"]))
    if schema is None:
        return None
    found = jsonschema.Draft202012Validator(schema).iter_errors(manifest)
    return [f"{manifest['metadata']['name']}: {error.json_path}: {error.message}" for error in found]


@cache
def definitions() -> dict[tuple[str, str], Schema]:
    """By apiVersion and kind."""
    found: dict[tuple[str, str], Schema] = {}
    for path in sorted(SCHEMAS.glob("*.yaml")):
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            schema = closed(version["schema"]["openAPIV3Schema"])
            # Its fields are Kubernetes' own, of which a definition says no more than that it is an object.
            schema["properties"]["metadata"] = {"type": "object"}
            found[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return found


def closed(schema: Any) -> Any:
    """A structural schema of Kubernetes' as a JSON schema that allows no field that it does not name."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        key: {name: closed(each) for name, each in value.items()} if key == "properties" else closed(value)
        for key, value in schema.items()
        if key != "enum"
    }
    if "enum" in schema:
        made["enum"] = schema["enum"]
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    open_ended = "additionalProperties" in schema or schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and "type" in schema and not open_ended:
        made["additionalProperties"] = False
    return made
