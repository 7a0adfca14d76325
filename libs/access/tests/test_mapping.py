"""The rules for names of certificates: the cases of Kafka's SslPrincipalMapperTest, and what Java's replacements do."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.mapping import (
    NAME_CHARS_MAX,
    Case,
    MappingRule,
    MappingRuleWrong,
    parse_rules,
    principal_name,
)

VALID = [
    "DEFAULT",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, DEFAULT",
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/",
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "RULE:^cn=(.?),ou=(.?),dc=(.?),dc=(.?)$/$1@$2/U",
    "RULE:^CN=([^,ADEFLTU,]+)(,.*|$)/$1/",
    "RULE:^CN=([^,DEFAULT,]+)(,.*|$)/$1/",
]
INVALID = [
    "default",
    "DEFAUL",
    "DEFAULT/L",
    "DEFAULT/U",
    "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
    "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/L",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/U",
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
]


@pytest.mark.parametrize("text", VALID)
def test_valid_rules_are_read(text: str) -> None:
    assert parse_rules(text)


@pytest.mark.parametrize("text", INVALID)
def test_invalid_rules_are_refused(text: str) -> None:
    with pytest.raises(MappingRuleWrong):
        parse_rules(text)


SPLIT = [
    ("", []),
    ("DEFAULT", ["DEFAULT"]),
    ("RULE://", ["RULE:/"]),
    ("RULE:/.*/", ["RULE:/.*"]),
    ("RULE:/.*/L", ["RULE:/.*/L"]),
    ("RULE://,DEFAULT", ["RULE:/", "DEFAULT"]),
    ("  RULE:// ,  DEFAULT  ", ["RULE:/", "DEFAULT"]),
    ("  RULE:   /     / ,  DEFAULT  ", ["RULE:   /     ", "DEFAULT"]),
    ("  RULE:  /     /U   ,DEFAULT  ", ["RULE:  /     /U", "DEFAULT"]),
    (
        "  RULE:([A-Z]*)/$1/U   ,RULE:([a-z]+)/$1/,   DEFAULT  ",
        ["RULE:([A-Z]*)/<1>/U", "RULE:([a-z]+)/<1>", "DEFAULT"],
    ),
    (",   , , ,      , , ,   ", []),
    (",,RULE://,,,DEFAULT,,", ["RULE:/", "DEFAULT"]),
    (",  , RULE: /   /    ,,,   DEFAULT, ,   ", ["RULE: /   ", "DEFAULT"]),
    ("     ,  , RULE:   /  /U    ,,  ,DEFAULT, ,", ["RULE:   /  /U", "DEFAULT"]),
    (r"RULE:\/\\\(\)\n\t/\/\//", [r"RULE:\/\\\(\)\n\t///"]),
    (r"RULE:\**\/+/*/L,RULE:\/*\**/**/", [r"RULE:\**\/+/*/L", r"RULE:\/*\**/**"]),
    (
        r"RULE:,RULE:,/,RULE:,\//U,RULE:,/RULE:,/,RULE:,RULE:,/L,RULE:,/L,RULE:, DEFAULT, /DEFAULT/,DEFAULT",
        [
            "RULE:,RULE:,/,RULE:,//U",
            "RULE:,/RULE:,",
            "RULE:,RULE:,/L,RULE:,/L",
            "RULE:, DEFAULT, /DEFAULT",
            "DEFAULT",
        ],
    ),
]


def shown(rule: MappingRule) -> str:
    """The rule as Kafka prints it, with groups in angle brackets and without the escapes of the replacement."""
    if rule.pattern is None:
        return "DEFAULT"
    replacement = "".join(part if isinstance(part, str) else f"<{part}>" for part in rule.parts)
    case = "" if rule.case is Case.KEPT else f"/{rule.case.value}"
    return f"RULE:{rule.pattern.pattern}/{replacement}{case}"


@pytest.mark.parametrize(("text", "rules"), SPLIT)
def test_rules_are_split_as_in_kafka(text: str, rules: list[str]) -> None:
    assert [shown(rule) for rule in parse_rules(text)] == rules


def names() -> st.SearchStrategy[str]:
    """Of certificates, more or less."""
    part = st.text("CN=aOU,é\\ \nx", max_size=6)
    return st.lists(
        st.sampled_from(["CN=", "OU=ServiceUsers", ",O=", ",OU=", ",C=", ",L=", ",ST="]) | part
    ).map("".join)


NAMES = [
    ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
    ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
    ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
    ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
    ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
]
RULES = ", ".join(
    [
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    ]
)


@pytest.mark.parametrize(("distinguished_name", "name"), NAMES)
def test_the_first_rule_that_matches_gives_the_name(distinguished_name: str, name: str) -> None:
    assert principal_name(parse_rules(RULES), distinguished_name) == name


def test_an_escaped_comma_stays_in_the_name() -> None:
    rules = parse_rules(r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT")
    assert principal_name(rules, r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == r"Tkac\, Adam"


REPLACED = [
    ("RULE:CN=(.*)/$1@$4/", "CN=a", "a@$4"),
    ("RULE:CN=(.*)/$12/", "CN=a", "a2"),
    ("RULE:CN=(.*)/$40/", "CN=a", "$40"),
    ("RULE:CN=(.*)/$0/", "CN=a", "CN=a"),
    (r"RULE:CN=(.*)/\$1/", "CN=a", "$1"),
    ("RULE:CN=(?<who>.*)/${who}!/", "CN=a", "a!"),
    ("RULE:CN=(a)|CN=(b)/<$1$2>/", "CN=b", "<b>"),
    ("RULE:(?<=x)?CN=.*/x/", "CN=a", "x"),
    ("RULE:.*/x/", "CN=a", "xx"),
]


@pytest.mark.parametrize(("text", "distinguished_name", "name"), REPLACED)
def test_replacements_are_those_of_java(text: str, distinguished_name: str, name: str) -> None:
    assert principal_name(parse_rules(text), distinguished_name) == name


LINEAR = [
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1/",
    "RULE:([a-z]+)*/x/",
    r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/",
    "RULE:CN=(?<who>.*)/${who}!/",
]
BY_BACKTRACKING = [
    "RULE:(?<=x)?CN=.*/x/",
    r"RULE:(.)\1/x/",
    "RULE:(?i)cn=(.*)/$1/",
    r"RULE:CN=\s(.*)/$1/",
    "RULE:a++/x/",
]


@pytest.mark.parametrize("text", [*LINEAR, *BY_BACKTRACKING])
def test_the_time_of_a_rule_is_linear_if_re2_can_read_it(text: str) -> None:
    (rule,) = parse_rules(text)
    assert isinstance(rule.pattern, re.Pattern) is (text in BY_BACKTRACKING)


@given(st.sampled_from([*VALID, RULES, *LINEAR, "RULE:.*/x/", "RULE:x*/<$0>/"]), names())
def test_re2_gives_the_names_that_backtracking_gives(text: str, name: str) -> None:
    rules = parse_rules(text)
    by_backtracking = [
        rule if rule.pattern is None else replace(rule, pattern=re.compile(rule.pattern.pattern, re.ASCII))
        for rule in rules
    ]
    assert principal_name(rules, name) == principal_name(by_backtracking, name)


@pytest.mark.parametrize("text", ["DEFAULT", "RULE:(.*)/$1/", "RULE:(?i)(.*)/$1/"])
def test_a_name_that_is_too_long_is_refused_before_a_rule_sees_it(text: str) -> None:
    name = "x" * NAME_CHARS_MAX
    assert principal_name(parse_rules(text), name) is not None
    assert principal_name(parse_rules(text), name + "x") is None


def test_a_name_is_matched_whole_or_refused() -> None:
    assert principal_name(parse_rules("RULE:CN=b/x/"), "CN=bc") is None
    assert principal_name(parse_rules(""), "CN=b") is None


def test_classes_are_ascii_as_in_java() -> None:
    assert principal_name(parse_rules(r"RULE:CN=(\w+)/$1/"), "CN=é") is None


@pytest.mark.parametrize(
    "text",
    ["RULE:(/x/", r"RULE:\p{Alpha}/x/", "RULE:[a-z&&b]/x/", "RULE:a/$1/", "RULE:(a)/$x/", "RULE:(a)/$/"],
)
def test_what_would_fail_at_the_first_certificate_is_refused_at_the_start(text: str) -> None:
    with pytest.raises(MappingRuleWrong):
        parse_rules(text)
