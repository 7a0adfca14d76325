"""What a front door process asks for before it serves."""

import resource

import pytest
from kafscale.frontdoor.__main__ import OTHER_DESCRIPTORS, allow_descriptors


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The soft and hard limit as the process sees them; the last one counts."""
    seen = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: seen[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: seen.append(pair))
    return seen


def test_descriptors_are_raised_to_what_the_connections_need(limits: list[tuple[int, int]]) -> None:
    allow_descriptors(2_000)
    assert limits[-1] == (2_000 + OTHER_DESCRIPTORS, 4096)


def test_what_is_allowed_already_is_left_alone(limits: list[tuple[int, int]]) -> None:
    allow_descriptors(500)
    assert limits == [(1024, 4096)]


def test_the_hard_limit_is_said_to_be_in_the_way(
    limits: list[tuple[int, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    allow_descriptors(100_000)
    assert limits[-1] == (4096, 4096)
    assert "fewer connections than max.connections" in capsys.readouterr().out
