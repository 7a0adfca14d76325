"""Straight-line readers: one function per layout, everything inlined, one unpack per run of fixed fields.

The offset only grows and slices never raise. So a read past the end raises IndexError or struct.error at the next
fixed field, or ends with an offset after the end. Only counts are checked immediately, before anything is allocated
for them. Bytes after the last field of a request are ignored, as in Kafka: kafka-go writes one byte too many in
DescribeAcls, librdkafka 2 in AlterUserScramCredentials. A response must end with its last field.
"""

from __future__ import annotations

from tools.wiregen.code import INT_ARRAYS, INTS_UNROLLED, Code, Module, default_source, format_size, squeeze
from tools.wiregen.model import FIXED, Field, Item, Layout


class Reader:
    """Writes the reader of one layout."""

    def __init__(self, module: Module, *, has_records: bool, ignores_rest: bool) -> None:
        self.code = Code(module)
        self._view, self._ignores_rest = has_records, ignores_rest
        self._formats: list[str] = []
        self._targets: list[str] = []

    def function(self, name: str, layout: Layout, elements_max: str) -> list[str]:
        """The lines of a function `name(b, end)` that returns the message."""
        self.code.line("o = 0")
        if any(item.field.array for item in _all_items(layout)):
            self.code.line(f"left = {elements_max}")
        value = self._struct(layout)
        self._flush()
        with self.code.block("if o > end:"):
            self.code.line(f'raise WireError("{layout.struct.name}", "cut short", offset=end)')
        if not self._ignores_rest:
            with self.code.block("if o < end:"):
                self.code.line(
                    f'raise WireError("{layout.struct.name}", f"{{end - o}} bytes left over", offset=o)'
                )
        self.code.line(f"return {value}")
        annotations = f"b: {'memoryview' if self._view else 'bytes'}, end: int"
        return [f"def {name}({annotations}) -> {layout.struct.name}:", *self.code.lines]

    def _fixed(self, letters: str, target: str) -> None:
        self._formats.append(letters)
        self._targets.append(target)

    def _flush(self) -> None:
        formats, targets = self._formats, self._targets
        self._formats, self._targets = [], []
        if not formats:
            return
        if formats == ["B"]:
            self.code.line(f"{targets[0]} = b[o]")
        else:
            comma = "," if len(targets) == 1 else ""
            unpack = self.code.module.unpack(squeeze(formats))
            self.code.line(f"{', '.join(targets)}{comma} = {unpack}(b, o)")
        self.code.line(f"o += {format_size(formats)}")

    def _struct(self, layout: Layout) -> str:
        """Reads a struct's fields; the expression that builds it."""
        values = {item.field.name: self._item(item, layout.flexible) for item in layout.plain}
        if layout.flexible:
            values |= self._tags(layout)
        return _constructor(layout, values)

    def _item(self, item: Item, flexible: bool) -> str:
        field = item.field
        if field.array:
            return self._array(item, flexible)
        if field.struct is not None:
            return self._nested(item)
        target = self.code.name("v")
        if field.kind in FIXED:
            self._fixed(FIXED[field.kind][0], target)
            return target
        self._text(field, target, nullable=item.nullable, flexible=flexible)
        return target

    def _nested(self, item: Item) -> str:
        assert item.layout is not None
        if not item.nullable:
            return self._struct(item.layout)
        mark, target = self.code.name("n"), self.code.name("v")
        self._fixed("b", mark)
        self._flush()
        with self.code.block(f"if {mark} < 0:"):
            self.code.line(f"{target} = None")
        with self.code.block("else:"):
            value = self._struct(item.layout)
            self._flush()
            self.code.line(f"{target} = {value}")
        return target

    def _length(self, field: Field, *, nullable: bool, flexible: bool) -> str:
        """Reads a length, in which -1 (flexible: 0) means null. Refuses null here."""
        length = self.code.name("n")
        self._fixed("B" if flexible else ("h" if field.kind == "string" and not field.array else "i"), length)
        self._flush()
        what = f'"{field.name}", {length}, o'
        if flexible and nullable:
            with self.code.block(f"if {length} > 127:"):
                self.code.line(f"{length}, o = uvarint_rest(b, o, {length})")
        elif flexible:
            with self.code.block(f"if not 0 < {length} < 128:"):
                self.code.line(f'{length}, o = length_rest(b, o, {length}, "{field.name}")')
        else:
            with self.code.block(f"if {length} < {-1 if nullable else 0}:"):
                self.code.line(f"raise bad_length({what})")
        return length

    def _text(self, field: Field, target: str, *, nullable: bool, flexible: bool) -> None:
        length = self._length(field, nullable=nullable, flexible=flexible)
        if nullable:
            with self.code.block(f"if {length}:" if flexible else f"if {length} >= 0:"):
                self._slice(field, target, length, flexible)
            with self.code.block("else:"):
                self.code.line(f"{target} = None")
        else:
            self._slice(field, target, length, flexible)

    def _slice(self, field: Field, target: str, length: str, flexible: bool) -> None:
        self.code.line(f"e = o + {length} - 1" if flexible else f"e = o + {length}")
        if field.kind == "string":
            raw = 'str(b[o:e], "utf-8", "replace")' if self._view else 'b[o:e].decode("utf-8", "replace")'
            self.code.line(f"{target} = {raw}")  # like Java's `new String(bytes, UTF_8)`
        elif field.kind == "bytes" and self._view:
            self.code.line(f"{target} = bytes(b[o:e])")
        else:
            self.code.line(f"{target} = b[o:e]")
        self.code.line("o = e")

    def _array(self, item: Item, flexible: bool) -> str:
        field = item.field
        count = self._length(field, nullable=item.nullable, flexible=flexible)
        target = self.code.name("l")
        if item.nullable:
            with self.code.block(f"if {count}:" if flexible else f"if {count} >= 0:"):
                self._elements(item, target, count, flexible)
            with self.code.block("else:"):
                self.code.line(f"{target} = None")
        else:
            self._elements(item, target, count, flexible)
        return target

    def _elements(self, item: Item, target: str, count: str, flexible: bool) -> None:
        field = item.field
        if flexible:
            self.code.line(f"{count} -= 1")
        size = _element_size_min(item, flexible)
        needed = count if size == 1 else f"{count} * {size}"
        with self.code.block(f"if {needed} > end - o or (left := left - {count}) < 0:"):
            self.code.line(f'raise too_many("{field.name}", {count}, o)')
        if field.kind in INT_ARRAYS:
            self._ints(field, target, count, size)
            return
        self.code.line(f"{target} = []")
        with self.code.block(f"for _ in range({count}):"):
            value = self._element(item, flexible)
            self._flush()
            self.code.line(f"{target}.append({value})")

    def _element(self, item: Item, flexible: bool) -> str:
        if item.layout is not None:
            return self._struct(item.layout)
        value = self.code.name("v")
        if item.field.kind in FIXED:
            self._fixed(FIXED[item.field.kind][0], value)
        else:
            self._text(item.field.element, value, nullable=False, flexible=flexible)
        return value

    def _ints(self, field: Field, target: str, count: str, size: int) -> None:
        letter = INT_ARRAYS[field.kind]
        unpack = f"UNPACK_{letter.upper()}[{count}](b, o) if {count} < {INTS_UNROLLED}"
        self.code.line(f'{target} = list({unpack} else unpack_from(f">{{{count}}}{letter}", b, o))')
        self.code.line(f"o += {count}" if size == 1 else f"o += {count} * {size}")

    def _tags(self, layout: Layout) -> dict[str, str]:
        count = self.code.name("t")
        self._fixed("B", count)
        self._flush()
        values = {item.field.name: self.code.name("v") for item in layout.tagged}
        for item in layout.tagged:
            self.code.line(f"{values[item.field.name]} = {default_source(item.field)}")
        with self.code.block(f"if {count}:"):
            if not layout.tagged:
                self.code.line(f"o = skip_tags_rest(b, o, {count})")
                return values
            self.code.line(f"{count}, o = tag_count(b, o, {count})")
            with self.code.block(f"for _ in range({count}):"):
                self._tag_values(layout, values)
        return values

    def _tag_values(self, layout: Layout, values: dict[str, str]) -> None:
        tag, stop = self.code.name("t"), self.code.name("e")
        self.code.line(f"{tag}, o = uvarint(b, o)")
        self.code.line(f"{stop}, o = uvarint(b, o)")
        self.code.line(f"{stop} += o")
        word = "if"
        for item in layout.tagged:
            with self.code.block(f"{word} {tag} == {item.tag}:"):
                value = self._item(item, flexible=True)
                self._flush()
                self.code.line(f"{values[item.field.name]} = {value}")
                with self.code.block(f"if o != {stop}:"):
                    self.code.line(f'raise bad_tag("{item.field.name}", {tag}, o)')
            word = "elif"
        with self.code.block("else:"):
            self.code.line(f"o = {stop}")


def _all_items(layout: Layout) -> list[Item]:
    nested = [inner for item in layout.items if item.layout for inner in _all_items(item.layout)]
    return [*layout.items, *nested]


def _element_size_min(item: Item, flexible: bool) -> int:
    if item.layout is not None:
        return max(1, item.layout.size_min)
    if item.field.kind in FIXED:
        return FIXED[item.field.kind][1]
    return 1 if flexible else (2 if item.field.kind == "string" else 4)


def _constructor(layout: Layout, values: dict[str, str]) -> str:
    """A positional call. Fields that this version lacks get their default; trailing defaults are left out."""
    fields = layout.struct.fields
    last = max((n for n, field in enumerate(fields) if field.name in values), default=-1)
    arguments = [values.get(field.name) or default_source(field) for field in fields[: last + 1]]
    return f"{layout.struct.name}({', '.join(arguments)})"
