"""Laws of compose.yaml, as far as the file says it: what a container may use and do, and which versions run.

`e2e/scenarios/test_compose.py` runs the file. Variables have their defaults here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.checkers.manifests.environment import PREFIX, PROCESS_BYTES, SETTINGS

Services = Mapping[str, dict[str, Any]]

VARIABLE: Final = re.compile(r"\$\{([A-Z0-9_]+)(?::?-([^}]*))?\}")
EXACT: Final = re.compile(r"v?\d+\.\d+(\.\d+)?(-[a-z]+)?")
UNITS: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
ENDING: Final = ("owners", "bucket", "spark", "certificates")
"""Containers that end by themselves."""
WITHOUT_PROGRAMS: Final = ("otel-collector",)
"""Images that hold no program which could ask for the health."""
CAPABILITIES: Final = {
    "owners": {"CHOWN", "DAC_READ_SEARCH"},
    "certificates": {"CHOWN", "DAC_OVERRIDE", "FOWNER"},
}
"""What root may do where it gives files to user 10001."""
OWN_USER: Final = ("grafana", "otel-collector")
"""Images that name a user who is not root."""


def services_of(*paths: Path) -> dict[str, dict[str, Any]]:
    """The services of the files, with defaults in place of variables. A later file adds new services only."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        text = VARIABLE.sub(lambda variable: variable[2] or "", path.read_text())
        for name, service in yaml.safe_load(text)["services"].items():
            found.setdefault(name, service)
    return found


def variables_of(path: Path) -> set[str]:
    return {name for name, _ in VARIABLE.findall(path.read_text())}


def size(text: str | int) -> int:
    """Bytes: 512m, 1g."""
    number, unit = re.fullmatch(r"(\d+)([kmg]?)b?", str(text)).groups()  # type: ignore[union-attr]
    return int(number) * UNITS.get(unit, 1)


def memory_and_processor_are_bounded(services: Services) -> Iterator[str]:
    """A service's limit covers what its settings allow, the process itself, and what it writes to memory."""
    for name, service in services.items():
        if not service.get("mem_limit") or not float(service.get("cpus", 0)):
            yield f"{name} may take all memory or processors"
            continue
        in_memory = sum(
            size(each.partition("size=")[2].partition(",")[0]) for each in service.get("tmpfs", ())
        )
        held = in_memory
        if name in SETTINGS:
            fields = {
                key.removeprefix(PREFIX).lower(): value for key, value in service["environment"].items()
            }
            kind = SETTINGS[name]
            settings = kind(**{key: value for key, value in fields.items() if key in kind.model_fields})
            held += settings.memory_bytes + PROCESS_BYTES + (settings.cache_bytes if name == "fetch" else 0)
        if size(service["mem_limit"]) < held:
            yield f"{name} may hold {held} bytes, and its limit is {service['mem_limit']}"


def memory_is_written_within_bounds(services: Services) -> Iterator[str]:
    for name, service in services.items():
        if any("size=" not in each for each in service.get("tmpfs", ())):
            yield f"{name} writes to memory without a bound"


def health_is_asked_for(services: Services) -> Iterator[str]:
    """Of each container that stays. The images of the services ask for themselves."""
    for name, service in services.items():
        own = service.get("healthcheck", {}).get("test")
        if own is None and name not in (*SETTINGS, *ENDING, *WITHOUT_PROGRAMS):
            yield f"nobody asks whether {name} is well"


def containers_may_do_little(services: Services) -> Iterator[str]:
    """A read-only root, no capabilities, no root; but for those that give files to user 10001, and then end."""
    for name, service in services.items():
        if not service.get("read_only") or service.get("cap_drop") != ["ALL"]:
            yield f"{name} may write to its root, or has capabilities"
        if service.get("security_opt") != ["no-new-privileges:true"]:
            yield f"{name} may gain privileges"
        if set(service.get("cap_add", ())) != CAPABILITIES.get(name, set()):
            yield f"{name} has the capabilities {service.get('cap_add')}"
        user = service.get("user", "").partition(":")[0]
        if name in CAPABILITIES:
            if service.get("network_mode") != "none":
                yield f"{name} is root, and has a network"
        elif user == "0" or not (user or "build" in service or name in OWN_USER):
            yield f"{name} may be root"


def versions_are_exact(services: Services) -> Iterator[str]:
    for name, service in services.items():
        if "build" not in service and not EXACT.fullmatch(tag_of(service["image"])):
            yield f"{name} runs {service['image']}, which changes with time"


def tag_of(image: str) -> str:
    return image.rpartition("/")[2].partition(":")[2]


def version_of(image: str) -> str:
    """The number in a tag: 7.0.15 of redis:7.0.15-alpine."""
    return tag_of(image).removeprefix("v").partition("-")[0]
