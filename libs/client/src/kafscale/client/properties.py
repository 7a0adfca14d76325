"""Java's files of settings: `client.properties` (java.util.Properties) and the JAAS line in it. Pure, but for
`read_settings`.

Law: a file means here what it means to Kafka's own tools. No error contains a value, because values are passwords.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 1 << 20
ENCODING: Final = "latin-1"
"""Java reads such a file in this encoding; other characters are written as \\uXXXX."""
_LINE_ENDS: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_SEPARATOR: Final = re.compile(r"[ \t\f]*[=:]?[ \t\f]*")
_ESCAPE: Final = re.compile(r"\\(?:u(?P<hex>[0-9A-Fa-f]{4})|(?P<char>.)|$)", re.DOTALL)
_MARKS: Final = "\\"
_KEY_MARKS: Final = "\\ =:#!"
_UTF16: Final = "utf-16-be"
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_JAAS_TOKEN: Final = re.compile(
    r"""(?P<blank>\s+|/\*.*?\*/|/[^\n]*)|"(?P<double>(?:\\.|[^"\\\n])*)"|'(?P<single>(?:\\.|[^'\\\n])*)'"""
    r"""|(?P<word>[A-Za-z0-9._$\u00a0-\uffff-]+)|(?P<mark>[=;])""",
    re.DOTALL,
)
_JAAS_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-3]?[0-7]{1,2})|(?P<char>.))", re.DOTALL)
_JAAS_CONTROLS: Final = {"a": "\a", "b": "\b", "v": "\v", **_CONTROLS}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})


class PropertiesWrong(ValueError):
    """The text says which setting is wrong, without its value."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """An entry of JAAS. The options are passwords, so the repr leaves them out."""

    name: str
    """The class, without its package: `ScramLoginModule`."""
    options: dict[str, str] = field(repr=False)


def read_settings(path: Path) -> dict[str, str]:
    """Raises PropertiesWrong. The text names the file."""
    from kafscale.storage.operator_files import FileWrong, read_text  # not for a command that only prints

    try:
        return parse_properties(read_text(path, FILE_BYTES_MAX, ENCODING))
    except (FileWrong, PropertiesWrong) as wrong:
        raise PropertiesWrong(f"{path}: {wrong}") from wrong


def parse_properties(text: str) -> dict[str, str]:
    """Raises PropertiesWrong. A key that occurs twice has its last value, as in Java."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None, "the pattern fits an empty text too"
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None, "this pattern too"
        name = _unescaped(key.group(), "a key")
        found[name] = _unescaped(line[separator.end() :], name)
    return found


def _logical_lines(text: str) -> Iterator[str]:
    """Without blank lines and comments. A backslash at the end joins a line to the next one."""
    whole = ""
    continues = False
    for natural in _LINE_ENDS.split(text):
        line = natural.lstrip(_BLANKS)
        if not continues and (not line or line[0] in "#!"):
            continue
        continues = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        whole += line[:-1] if continues else line
        if not continues:
            yield whole
            whole = ""
    if whole:
        yield whole


def _unescaped(text: str, what: str) -> str:
    def one(found: re.Match[str]) -> str:
        if found["hex"] is not None:
            return chr(int(found["hex"], 16))
        if found["char"] == "u":
            raise PropertiesWrong(f"{what}: \\u needs four hexadecimal digits")
        char: str = found["char"] or ""
        return _CONTROLS.get(char, char)

    # Java's strings are UTF-16: two escapes may be one character.
    return _ESCAPE.sub(one, text).encode(_UTF16, "surrogatepass").decode(_UTF16, "surrogatepass")


def format_properties(settings: Mapping[str, str]) -> str:
    """The text of a file that `parse_properties` and Java read as these settings."""
    return "".join(
        f"{_escaped(key, _KEY_MARKS)}={_escaped(value, _MARKS)}\n" for key, value in settings.items()
    )


def _escaped(text: str, marks: str) -> str:
    found = "".join(_escaped_char(char, marks) for char in text)
    return f"\\{found}" if found.startswith(" ") else found


def _escaped_char(char: str, marks: str) -> str:
    if char in marks:
        return f"\\{char}"
    if " " <= char <= "~":
        return char
    units = char.encode(_UTF16, "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))


def parse_jaas(text: str) -> LoginModule:
    """The only entry of `sasl.jaas.config`: `Module required name="value" … ;`. Raises PropertiesWrong."""
    tokens = list(_jaas_tokens(text))
    if not tokens or tokens[-1] != (False, ";"):
        raise PropertiesWrong("sasl.jaas.config does not end with a semicolon")
    head, pairs = tokens[:2], tokens[2:-1]
    if len(head) < 2 or head[1][1].lower() not in _FLAGS:
        raise PropertiesWrong("sasl.jaas.config does not begin with a login module and `required`")
    if (False, ";") in pairs:
        raise PropertiesWrong("sasl.jaas.config has more than one login module")
    options: dict[str, str] = {}
    for at in range(0, len(pairs), 3):
        name, *rest = pairs[at : at + 3]
        if len(rest) != 2 or rest[0] != (False, "=") or rest[1] == (False, "="):
            raise PropertiesWrong('sasl.jaas.config: each option is name="value"; one has no value')
        options[name[1]] = rest[1][1]
    return LoginModule(head[0][1].rpartition(".")[2], options)


def format_jaas(module: str, options: Mapping[str, str]) -> str:
    """A `sasl.jaas.config` that `parse_jaas` and Java read as these options. `module` is the class with its package."""
    pairs = "".join(f' {name}="{_jaas_quoted(value)}"' for name, value in options.items())
    return f"{module} required{pairs};"


def _jaas_quoted(text: str) -> str:
    return re.sub(r"[\x00-\x1f\"\\]", lambda found: _jaas_escaped(found.group()), text)


def _jaas_escaped(char: str) -> str:
    return f"\\{char}" if char >= " " else f"\\{ord(char):03o}"


def _jaas_tokens(text: str) -> Iterator[tuple[bool, str]]:
    """Texts, with whether they are words or quoted (and no marks), as Java's StreamTokenizer finds them."""
    at = 0
    while at < len(text):
        found = _JAAS_TOKEN.match(text, at)
        if found is None:
            raise PropertiesWrong(
                "sasl.jaas.config cannot be read: a quotation mark or a semicolon is missing"
            )
        at = found.end()
        quoted = found["double"] if found["double"] is not None else found["single"]
        if quoted is not None:
            yield True, _JAAS_ESCAPE.sub(_jaas_char, quoted)
        elif found["word"] is not None:
            yield True, found["word"]
        elif found["mark"] is not None:
            yield False, found["mark"]


def _jaas_char(found: re.Match[str]) -> str:
    if found["octal"] is not None:
        return chr(int(found["octal"], 8))
    char: str = found["char"]
    return _JAAS_CONTROLS.get(char, char)
