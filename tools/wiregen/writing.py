"""Straight-line writers: one function per layout, one pack per run of fixed fields, lengths included.

A function returns a scatter list: bytearrays with all small fields, and between them the caller's record buffers.
Records are never copied.
"""

from __future__ import annotations

from tools.wiregen.code import INT_ARRAYS, INTS_UNROLLED, Code, Module, default_source, shareable, squeeze
from tools.wiregen.model import FIXED, Field, Item, Layout


class Writer:
    """Writes the writer of one layout."""

    def __init__(self, module: Module) -> None:
        self.code = Code(module)
        self._out = "out"
        self._formats: list[str] = []
        self._values: list[str] = []

    def function(self, name: str, layout: Layout, *, has_records: bool) -> list[str]:
        """The lines of a function `name(m)` that returns the scatter list."""
        self.code.line("out = bytearray()")
        if has_records:
            self.code.line("parts: list[Buffer] = []")
        self._struct(layout, "m")
        self._flush()
        if has_records:
            with self.code.block("if out:"):
                self.code.line("parts.append(out)")
        self.code.line("return parts" if has_records else "return [out]")
        return [f"def {name}(m: {layout.struct.name}) -> list[Buffer]:", *self.code.lines]

    def _fixed(self, letters: str, value: str) -> None:
        self._formats.append(letters)
        self._values.append(value)

    def _packed(self, formats: list[str], values: list[str]) -> str:
        return f"{self.code.module.pack(squeeze(formats))}({', '.join(values)})"

    def _flush(self) -> None:
        formats, values = self._formats, self._values
        self._formats, self._values = [], []
        if formats == ["B"]:
            self.code.line(f"{self._out}.append({values[0]})")
        elif formats:
            self.code.line(f"{self._out} += {self._packed(formats, values)}")

    def _uvarint(self, value: str) -> None:
        """An unsigned varint. If it has one byte, as it nearly always does, it is packed with the run before it."""
        before, arguments = self._formats, self._values
        self._formats, self._values = [], []
        with self.code.block(f"if {value} < 128:"):
            self._formats, self._values = [*before, "B"], [*arguments, value]
            self._flush()
        with self.code.block("else:"):
            self._formats, self._values = before, arguments
            self._flush()
            self.code.line(f"{self._out} += encode_uvarint({value})")

    def _struct(self, layout: Layout, value: str) -> None:
        for item in layout.plain:
            self._item(item, f"{value}.{item.field.name}", layout.flexible)
        if layout.flexible:
            self._tags(layout, value)

    def _item(self, item: Item, value: str, flexible: bool) -> None:
        field = item.field
        if field.array:
            self._array(item, value, flexible)
        elif field.struct is not None:
            self._nested(item, value)
        elif field.kind in FIXED:
            self._fixed(FIXED[field.kind][0], value)
        elif field.kind == "records":
            self._records(item, value, flexible)
        else:
            self._text(field, value, nullable=item.nullable, flexible=flexible)

    def _nested(self, item: Item, value: str) -> None:
        assert item.layout is not None
        target = self.code.name("x")
        if not item.nullable:
            self.code.line(f"{target} = {value}")
            self._struct(item.layout, target)
            return
        self._flush()
        self.code.line(f"{target} = {value}")
        with self.code.block(f"if {target} is None:"):
            self.code.line(f"{self._out}.append(255)")
        with self.code.block("else:"):
            self._fixed("b", "1")
            self._struct(item.layout, target)
            self._flush()

    def _length(self, field: Field, length: str, flexible: bool) -> None:
        if flexible:
            self._uvarint(length)
        else:
            self._fixed("h" if field.kind == "string" and not field.array else "i", length)
            self._flush()

    def _text(self, field: Field, value: str, *, nullable: bool, flexible: bool) -> None:
        text, length = self.code.name("s"), self.code.name("n")
        encode = ".encode()" if field.kind == "string" else ""
        more = " + 1" if flexible else ""
        if nullable:
            self.code.line(f"{text} = {value}")
            with self.code.block(f"if {text} is None:"):
                self.code.line(f'{text}, {length} = b"", {0 if flexible else -1}')
            with self.code.block("else:"):
                if encode:
                    self.code.line(f"{text} = {text}{encode}")
                self.code.line(f"{length} = len({text}){more}")
        else:
            self.code.line(f"{text} = {value}{encode}")
            self.code.line(f"{length} = len({text}){more}")
        self._length(field, length, flexible)
        self.code.line(f"{self._out} += {text}")

    def _records(self, item: Item, value: str, flexible: bool) -> None:
        records, length, one = self.code.name("r"), self.code.name("n"), self.code.name("c")
        more = " + 1" if flexible else ""
        self.code.line(f"{records} = {value}")
        self.code.line(f"{one} = type({records}) in SINGLE_BUFFER")
        with self.code.block(f"if {one}:"):
            self.code.line(f"{length} = len({records}){more}")
        if item.nullable:
            with self.code.block(f"elif {records} is None:"):
                self.code.line(f"{length} = {0 if flexible else -1}")
        with self.code.block("else:"):
            self.code.line(f"{length} = sum(map(len, {records})){more}")
        self._length(item.field, length, flexible)
        with self.code.block(f"if {length} > {1 if flexible else 0}:"):
            self.code.line("parts.append(out)")
            self.code.line(f"parts.append({records}) if {one} else parts.extend({records})")
            self.code.line("out = bytearray()")

    def _array(self, item: Item, value: str, flexible: bool) -> None:
        field = item.field
        target, count = self.code.name("l"), self.code.name("n")
        more = " + 1" if flexible else ""
        self.code.line(f"{target} = {value}")
        if item.nullable:
            with self.code.block(f"if {target} is None:"):
                self.code.line(f"{target}, {count} = (), {0 if flexible else -1}")
            with self.code.block("else:"):
                self.code.line(f"{count} = len({target}){more}")
        else:
            self.code.line(f"{count} = len({target}){more}")
        self._length(field, count, flexible)
        if field.kind in INT_ARRAYS:
            self._ints(field, target)
            return
        element = self.code.name("x")
        with self.code.block(f"for {element} in {target}:"):
            if item.layout is not None:
                self._struct(item.layout, element)
            elif field.kind in FIXED:
                self._fixed(FIXED[field.kind][0], element)
            else:
                self._text(field.element, element, nullable=False, flexible=flexible)
            self._flush()

    def _ints(self, field: Field, target: str) -> None:
        letter = INT_ARRAYS[field.kind]
        many = f'pack(f">{{len({target})}}{letter}", *{target})'
        few = f"PACK_{letter.upper()}[len({target})](*{target})"
        with self.code.block(f"if {target}:"):
            self.code.line(f"{self._out} += {few} if len({target}) < {INTS_UNROLLED} else {many}")

    def _tags(self, layout: Layout, value: str) -> None:
        if not layout.tagged:
            self._fixed("B", "0")
            return
        present = []
        for item in layout.tagged:
            field, target, flag = item.field, self.code.name("x"), self.code.name("c")
            self.code.line(f"{target} = {value}.{field.name}")
            self.code.line(f"{flag} = {_differs(field, target)}")
            present.append((item, target, flag))
        self._fixed("B", " + ".join(flag for _, _, flag in present))
        self._flush()
        for item, target, flag in present:
            with self.code.block(f"if {flag}:"):
                self._tag(item, target)

    def _tag(self, item: Item, target: str) -> None:
        outer, self._out = self._out, self.code.name("out")
        self.code.line(f"{self._out} = bytearray()")
        self._item(item, target, flexible=True)
        self._flush()
        inner, self._out = self._out, outer
        self.code.line(f"{outer} += encode_uvarint({item.tag}) + encode_uvarint(len({inner})) + {inner}")


def _differs(field: Field, target: str) -> str:
    """Whether a tagged field has to be sent."""
    default = default_source(field)
    if default == "None":
        return f"{target} is not None"
    if field.struct is not None and not field.array and shareable(field):
        return f"{target} is not {default} and {target} != {default}"
    if default in ("[]", '""', 'b""'):
        return f"{target} is None or len({target}) > 0" if len(field.nullable) else f"len({target}) > 0"
    return f"{target} != {default}"
