"""How the bytes of records are shown: by their schema if the console has a registry, or as the person chose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafscale.console.answers import one_of
from kafscale.console.decode.plain import TEXT_CHARS_MAX, Format, View, view_of
from kafscale.console.decode.schemas import Views, schema_id_of
from kafscale.console.records.reading import Record
from kafscale.console.routes import Call

_LIKELY_ID_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Showing:
    """The formats of keys and values. `views`: of bytes that name their schema; None without a registry."""

    key: Format = Format.AUTO
    value: Format = Format.AUTO
    views: Views | None = None
    chars_max: int = TEXT_CHARS_MAX

    def of(self, data: bytes | None, wanted: Format) -> View:
        if wanted is Format.AUTO and data is not None and self.views is not None and data in self.views:
            return self.views[data]
        found = view_of(data, wanted, self.chars_max)
        number = schema_id_of(data)
        if self.views is None and "reason" in found and number and number <= _LIKELY_ID_MAX:
            found["reason"] += f"; it may be of schema {number}: the option --schema-registry decodes it"
        return found


async def showing_of(call: Call, records: Iterable[Record], chars_max: int = TEXT_CHARS_MAX) -> Showing:
    """As the query says: `key_as` and `value_as`. Raises Problem."""
    key, value = format_of(call.query, "key_as"), format_of(call.query, "value_as")
    views: Views | None = None
    if call.site.schemas is not None:
        fields: list[bytes | None] = []
        for record in records:
            fields += [record.key] * (key is Format.AUTO) + [record.value] * (value is Format.AUTO)
        views = await call.site.schemas.views(fields, chars_max)
    return Showing(key=key, value=value, views=views, chars_max=chars_max)


def format_of(query: Mapping[str, str], name: str) -> Format:
    """Raises Problem."""
    return Format(one_of(query, name, [each.value for each in Format]))
