"""Clients and ACLs of clusters whose listeners are SASL_SSL."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from kafscale.wire.schema import sasl_authenticate, sasl_handshake

from e2e.harness.raw import ANSWER_TIMEOUT_S, Closed, Wire

DONE_TIMEOUT_S = 30.0


def settings_of(
    bootstrap: str, ca: Path, user: str, password: str, mechanism: str = "SCRAM-SHA-512"
) -> dict[str, Any]:
    """Of librdkafka."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(ca),
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
    }


def done(futures: Mapping[Any, Any]) -> None:
    """Raises the first error of an administrator's request."""
    for future in futures.values():
        future.result(DONE_TIMEOUT_S)


def rule(
    user: str,
    operation: AclOperation,
    kind: ResourceType,
    name: str,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    who = f"User:{user}"
    return AclBinding(kind, name, ResourcePatternType.LITERAL, who, "*", operation, permission)


def filter_of(acl: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        acl.restype,
        acl.name,
        acl.resource_pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


async def logged_in(address: str, ca: Path, user: str, password: str) -> Wire:
    """A raw connection after a login by PLAIN. Raises OSError or EOFError if the front door closes it, and Closed if it
    refuses the password."""
    host, port = address.rsplit(":", 1)
    async with asyncio.timeout(ANSWER_TIMEOUT_S):
        reader, writer = await asyncio.open_connection(
            host, int(port), ssl=ssl.create_default_context(cafile=ca), server_hostname=host
        )
        wire = Wire(reader, writer, "raw")
        try:
            await log_in(wire, "PLAIN", f"\0{user}\0{password}".encode())
        except BaseException:
            writer.transport.abort()  # close() would wait for the other end
            raise
    return wire


async def log_in(wire: Wire, mechanism: str, *tokens: bytes | Callable[[bytes], bytes]) -> None:
    """Sends the tokens of a mechanism. One that depends on the server's last token is a function of it."""
    await wire.ask(sasl_handshake, 1, sasl_handshake.SaslHandshakeRequest(mechanism=mechanism))
    said = b""
    for token in tokens:
        sent = token(said) if callable(token) else token
        answer = await wire.ask(
            sasl_authenticate, 2, sasl_authenticate.SaslAuthenticateRequest(auth_bytes=sent)
        )
        if answer.error_code:
            raise Closed(answer.error_message)
        said = bytes(answer.auth_bytes)
