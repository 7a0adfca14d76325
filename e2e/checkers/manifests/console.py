"""Laws of the web console: it starts with the environment of its pod, and is reached as that allows."""

from __future__ import annotations

from typing import Any

from kafscale.console.__main__ import composed
from kafscale.console.settings import mistake
from kafscale.console.variables import ConsoleVariables
from kafscale.runtime.settings import ServiceSettings
from pydantic import ValidationError
from pydantic_settings import BaseSettings

from e2e.checkers.manifests.environment import environment
from e2e.checkers.manifests.objects import Objects, console, ports


def the_console_starts(objects: Objects) -> list[str]:
    """Each of its variables is a setting, with a value that the console takes, and its rules allow what they say."""
    workload = console(objects)
    if workload is None:
        return []
    variables = environment(objects, workload, workload.pod["containers"][0])
    known = {name for kind in (ConsoleVariables, ServiceSettings) for name in _fields(kind)}
    found = [f"{workload.name}: {name} is no setting of it" for name in variables if _is_strange(name, known)]
    try:
        entrance, settings = composed(_taken(ConsoleVariables, variables))
        _taken(ServiceSettings, variables)
    except ValidationError as trouble:
        return [*found, f"{workload.name} would end with code 2: {trouble}"]
    if (problem := mistake(settings, entrance.mode)) is not None:
        found.append(f"{workload.name} would end with code 2: {problem}")
    return found


def the_console_is_one_process_at_its_ports(objects: Objects) -> list[str]:
    """Sessions are in its memory. Its page is at the port of its Service, its probes at `http`."""
    workload = console(objects)
    if workload is None:
        return []
    variables = environment(objects, workload, workload.pod["containers"][0])
    given = _taken(ConsoleVariables, variables)
    known = ports(workload.pod["containers"][0])
    found = []
    if workload.spec.get("replicas") != 1 or workload.spec.get("strategy", {}).get("type") != "Recreate":
        found.append(f"{workload.name} may run twice, and a session is in one of them")
    if (given.port, given.http_listen) != (known.get("page"), f"0.0.0.0:{known.get('http')}"):
        found.append(f"{workload.name} is at {given.port} and {given.http_listen}, and its ports are {known}")
    return found


def _fields(kind: type[BaseSettings]) -> dict[str, str]:
    """Names of fields by their variables."""
    prefix = str(kind.model_config["env_prefix"])
    return {f"{prefix}{name}".upper(): name for name in kind.model_fields}


def _is_strange(name: str, known: set[str]) -> bool:
    return name.startswith("KAFSCALE_") and name not in known


def _taken(kind: type[Any], variables: dict[str, str]) -> Any:
    """Raises ValidationError."""
    return kind(**{field: variables[name] for name, field in _fields(kind).items() if name in variables})
