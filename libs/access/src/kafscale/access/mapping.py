r"""`ssl.principal.mapping.rules`: how the distinguished name of a client certificate becomes a principal's name.

Rules are separated by commas and tried in order. `DEFAULT` takes the whole name. `RULE:pattern/replacement/` takes
the replacement if the pattern matches the whole name; `L` or `U` after the last slash changes the case. A backslash
before a slash keeps the slash inside a part. Source: SslPrincipalMapper (KIP-371).

Patterns are written for Java. Python's `re` has the same syntax for what such rules use, with ASCII classes and named
groups translated. Java's own syntax beyond that (`\p{…}`, `\Q…\E`, `&&` in a class) is refused when the rules are read.

A client chooses what its certificate's name contains, as far as its CA lets it, and rules run on the event loop. So a
name has at most NAME_CHARS_MAX characters, and RE2, whose time is linear, runs every pattern that it can read. Only
look-around, back-references, possessive and case-insensitive patterns are run by `re`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NoReturn, Protocol

_JAVA_SPACE: Final = " \t\n\x0b\f\r"
_NAMED_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_RULE: Final = "RULE:"
_DEFAULT: Final = "DEFAULT"


_READ_OTHERWISE: Final = re.compile(r"\(\?[a-z]*i|\[\[:|\\s", re.IGNORECASE)
"""Case-insensitive groups, which are Unicode's in RE2; POSIX classes; and white space, of which RE2 leaves out \v."""
NAME_CHARS_MAX: Final = 1_024


class Match(Protocol):
    def group(self, number: int, /) -> str | None: ...


class Pattern(Protocol):
    """Of `re` or of RE2."""

    @property
    def pattern(self) -> str: ...

    @property
    def groups(self) -> int: ...

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def fullmatch(self, text: str, /) -> Match | None: ...

    def sub(self, replacement: Callable[[Match], str], text: str, /) -> str: ...


class MappingRuleWrong(ValueError):
    """The rules cannot be used; the sentence says why."""


class Case(Enum):
    KEPT = ""
    LOWER = "L"
    UPPER = "U"


Part = str | int
"""Of a replacement: a text, or the number of a group (0: the whole match)."""


@dataclass(frozen=True, slots=True)
class MappingRule:
    """One rule. `DEFAULT` has no pattern."""

    pattern: Pattern | None = None
    parts: tuple[Part, ...] = ()
    case: Case = Case.KEPT

    def apply(self, distinguished_name: str) -> str | None:
        """The principal's name, or None if the rule does not match.

        As in Java's `replaceAll`, every match is replaced: a pattern that also matches nothing may match twice.
        """
        if self.pattern is None:
            return distinguished_name
        if self.pattern.fullmatch(distinguished_name) is None:
            return None
        name = self.pattern.sub(self._expand, distinguished_name)
        if self.case is Case.LOWER:
            return name.lower()
        return name.upper() if self.case is Case.UPPER else name

    def _expand(self, match: Match) -> str:
        # A group that took no part in the match is empty, as in Java.
        return "".join(part if isinstance(part, str) else match.group(part) or "" for part in self.parts)


def principal_name(rules: Sequence[MappingRule], distinguished_name: str) -> str | None:
    """The name by the first rule that matches. None: no rule matches, or the name is too long, and the connection is
    refused."""
    if len(distinguished_name) > NAME_CHARS_MAX:
        return None
    for rule in rules:
        name = rule.apply(distinguished_name)
        if name is not None:
            return name
    return None


def parse_rules(text: str) -> tuple[MappingRule, ...]:
    """Raises MappingRuleWrong. Empty rules are ignored. A text without rules accepts no certificate."""
    rules: list[MappingRule] = []
    at = _skip(text, 0, _JAVA_SPACE + ",")
    while at < len(text):
        begin = at
        if text.startswith(_DEFAULT, at):
            rules.append(MappingRule())
            at += len(_DEFAULT)
        elif text.startswith(_RULE, at):
            rule, at = _parse_rule(text, at + len(_RULE))
            rules.append(rule)
        else:
            _wrong(text, at, "neither RULE:pattern/replacement/[LU] nor DEFAULT")
        at = _skip(text, at, _JAVA_SPACE)
        if at < len(text) and text[at] != ",":
            _wrong(text, begin, f"{text[at:]!r} follows the rule, where a comma or the end is expected")
        at = _skip(text, at, _JAVA_SPACE + ",")
    return tuple(rules)


def _parse_rule(text: str, at: int) -> tuple[MappingRule, int]:
    """The rule whose pattern begins at `at`, and the position after it."""
    pattern, at = _until_slash(text, at)
    replacement, at = _until_slash(text, at)
    case = Case(text[at]) if text[at : at + 1] in ("L", "U") else Case.KEPT
    compiled = _compiled(pattern)
    rule = MappingRule(compiled, tuple(_parts(replacement, compiled)), case)
    return rule, at + len(case.value)


def _until_slash(text: str, at: int) -> tuple[str, int]:
    """The part up to the next slash that no backslash escapes, and the position after the slash."""
    begin = at
    while at < len(text) and text[at] != "/":
        at += 2 if text[at] == "\\" else 1
    if at >= len(text):
        _wrong(text, begin, "a RULE has two slashes: RULE:pattern/replacement/[LU]")
    return text[begin:at], at + 1


def _compiled(pattern: str) -> Pattern:
    if "&&" in pattern:
        raise MappingRuleWrong(f"pattern {pattern!r}: Java's && in a character class is not supported")
    try:
        translated = _NAMED_GROUP.sub("(?P<", pattern)
        checked: Pattern = re.compile(translated, re.ASCII)
    except re.error as error:
        raise MappingRuleWrong(f"pattern {pattern!r}: {error}") from error
    return _linear(translated) or checked


def _linear(pattern: str) -> Pattern | None:
    """None: RE2 cannot read the pattern, or reads it in another way."""
    import re2  # type: ignore[import-untyped]  # for the few front doors with rules

    if _READ_OTHERWISE.search(pattern):
        return None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error:
        return None
    return compiled


def _parts(replacement: str, pattern: Pattern) -> list[Part]:
    """Java's replacement: `$1` and `${name}` are groups, a backslash makes the next character a text."""
    parts: list[Part] = []
    at = 0
    while at < len(replacement):
        if replacement[at] == "\\":
            parts.append(replacement[at + 1])
            at += 2
        elif replacement[at] == "$":
            part, at = _group(replacement, at + 1, pattern)
            parts.append(part)
        else:
            parts.append(replacement[at])
            at += 1
    return parts


def _group(replacement: str, at: int, pattern: Pattern) -> tuple[Part, int]:
    """The group after a dollar sign, and the position after it.

    It takes as many digits as name a group. If not even one digit names a group, the dollar sign is text, but only
    for a pattern that has groups: without groups, Kafka fails at the first certificate.
    """
    if replacement[at : at + 1] == "{":
        name, closed, _ = replacement[at + 1 :].partition("}")
        if closed and name in pattern.groupindex:
            return pattern.groupindex[name], at + len(name) + 2
    digits = re.match("[0-9]+", replacement[at:])
    if digits is None:
        raise MappingRuleWrong(f"replacement {replacement!r}: no group follows a $")
    for length in range(len(digits[0]), 0, -1):
        number = int(digits[0][:length])
        if number <= pattern.groups:
            return number, at + length
    if pattern.groups == 0:
        raise MappingRuleWrong(f"replacement {replacement!r}: the pattern has no groups")
    return "$", at


def _skip(text: str, at: int, characters: str) -> int:
    while at < len(text) and text[at] in characters:
        at += 1
    return at


def _wrong(text: str, at: int, why: str) -> NoReturn:
    raise MappingRuleWrong(f"ssl.principal.mapping.rules, at {text[at : at + 40]!r}: {why}")
