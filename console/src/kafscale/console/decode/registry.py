"""Schemas of a Confluent-compatible registry (Confluent's, Apicurio's, Karapace), by id or subject.

Law S7: the registry's address and login are settings; a browser names an id or a subject, and nothing else. No redirect
is followed. An answer has TIMEOUT_S and BYTES_MAX, a schema REFERENCES_MAX others that it names. A failure is kept for
RETRY_S, so that a page of records without a registry does not ask for each of them.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

TIMEOUT_S: Final = 5.0
BYTES_MAX: Final = 2 << 20
REFERENCES_MAX: Final = 100
SUBJECT_CHARS_MAX: Final = 512
KEPT_MAX: Final = 1_000
RETRY_S: Final = 15.0
KINDS: Final = ("AVRO", "JSON", "PROTOBUF")
_ACCEPT: Final = "application/vnd.schemaregistry.v1+json, application/json"
_NOT_FOUND: Final = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """`kind` is one of KINDS. `references`: texts by the name that `text` uses, each after those that it uses itself.
    `subject`: one of those that have it, with the version, for people."""

    schema_id: int
    kind: str
    text: str
    references: tuple[tuple[str, str], ...]
    subject: str | None


class RegistryTrouble(Exception):
    """The text is a part of a sentence: why there is no schema."""


class Registry:
    def __init__(self, url: str, login: tuple[str, str] | None = None) -> None:
        self._url = url.rstrip("/")
        self._login = None if login is None else aiohttp.BasicAuth(*login)
        self._session: aiohttp.ClientSession | None = None
        self._known: OrderedDict[int, asyncio.Task[Schema]] = OrderedDict()
        self._failed: dict[int, tuple[RegistryTrouble, float]] = {}

    async def schema(self, schema_id: int) -> Schema:
        """Raises RegistryTrouble."""
        failed = self._failed.get(schema_id)
        if failed is not None and time.monotonic() - failed[1] < RETRY_S:
            raise failed[0]
        if schema_id not in self._known:  # those who ask meanwhile wait for the same answer
            self._known[schema_id] = asyncio.create_task(self._read(schema_id))
            while len(self._known) > KEPT_MAX:
                self._known.popitem(last=False)
        self._known.move_to_end(schema_id)
        try:
            return await asyncio.shield(self._known[schema_id])
        except RegistryTrouble as trouble:
            self._known.pop(schema_id, None)
            self._failed[schema_id] = trouble, time.monotonic()
            while len(self._failed) > KEPT_MAX:
                self._failed.pop(next(iter(self._failed)))
            raise

    async def latest(self, subject: str) -> Schema:
        """Of the newest version, which is asked for each time. Raises RegistryTrouble."""
        if not 0 < len(subject) <= SUBJECT_CHARS_MAX or subject in (".", ".."):
            raise RegistryTrouble(f"a subject has 1 to {SUBJECT_CHARS_MAX} characters, and is not . or ..")
        try:
            found = await self._get(f"/subjects/{quote(subject, safe='')}/versions/latest")
            number = int(found["id"])
            if not 0 <= number < 1 << 32:
                raise RegistryTrouble(f"the registry's id {number} does not fit into the header of a record")
            schema = await self._schema_of(found, number)
            return replace(schema, subject=f"{subject} version {int(found['version'])}")
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            raise RegistryTrouble(f"the registry's answer for subject {subject} is not a schema") from wrong

    async def _read(self, schema_id: int) -> Schema:
        try:
            found = await self._get(f"/schemas/ids/{schema_id}")
            schema = await self._schema_of(found, schema_id)
            return replace(schema, subject=await self._subject(schema_id))
        except (KeyError, TypeError, ValueError, AttributeError) as wrong:
            raise RegistryTrouble(f"the registry's answer for schema {schema_id} is not a schema") from wrong

    async def _schema_of(self, found: Mapping[str, Any], schema_id: int) -> Schema:
        """Without its subject. Raises RegistryTrouble, and KeyError, TypeError, ValueError or AttributeError for what
        is no schema."""
        kind = found.get("schemaType", "AVRO")
        if kind not in KINDS:
            raise RegistryTrouble(
                f"schema {schema_id} is of the kind {str(kind)[:40]}, which is not known here"
            )
        references: dict[str, str] = {}
        await self._add_references(found, references, set())
        return Schema(
            schema_id=schema_id,
            kind=kind,
            text=str(found["schema"]),
            references=tuple(references.items()),
            subject=None,
        )

    async def _add_references(self, found: Mapping[str, Any], into: dict[str, str], seen: set[str]) -> None:
        for each in found.get("references") or ():
            name, subject, version = str(each["name"]), str(each["subject"]), int(each["version"])
            if name in seen:
                continue
            seen.add(name)
            if len(seen) > REFERENCES_MAX:
                raise RegistryTrouble(f"the schema names more than {REFERENCES_MAX} others")
            other = await self._get(f"/subjects/{quote(subject, safe='')}/versions/{version}")
            await self._add_references(other, into, seen)
            into[name] = str(other["schema"])

    async def _subject(self, schema_id: int) -> str | None:
        """Not every registry has this request, and a login may not be allowed to send it."""
        try:
            found: Any = await self._get(f"/schemas/ids/{schema_id}/versions")
            return f"{found[0]['subject']} version {int(found[0]['version'])}"
        except (RegistryTrouble, LookupError, TypeError, ValueError):
            return None

    async def _get(self, path: str) -> Any:
        """Raises RegistryTrouble."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S))
        where = URL(self._url + path, encoded=True)
        try:
            async with self._session.get(
                where, auth=self._login, allow_redirects=False, headers={"Accept": _ACCEPT}
            ) as answer:
                if answer.status == _NOT_FOUND:
                    raise RegistryTrouble(f"the registry does not have {path}")
                if answer.status != 200:
                    raise RegistryTrouble(f"the registry answers {path} with status {answer.status}")
                body = await answer.content.read(BYTES_MAX + 1)
                while len(body) <= BYTES_MAX and (
                    more := await answer.content.read(BYTES_MAX + 1 - len(body))
                ):
                    body += more
        except TimeoutError as late:
            raise RegistryTrouble(f"the registry did not answer within {TIMEOUT_S:.0f} s") from late
        except (aiohttp.ClientError, OSError) as away:
            raise RegistryTrouble(f"the registry does not answer ({type(away).__name__})") from away
        if len(body) > BYTES_MAX:
            raise RegistryTrouble(f"the registry's answer has more than {BYTES_MAX >> 20} MiB")
        try:
            return orjson.loads(body)
        except ValueError as wrong:
            raise RegistryTrouble("the registry's answer is not JSON") from wrong

    async def close(self) -> None:
        for task in self._known.values():
            task.cancel()
        if self._session is not None:
            await self._session.close()
