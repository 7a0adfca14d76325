"""The timeline of a chaos run and its page: which silence is of which fault, and that the page shows what is there."""

from __future__ import annotations

from e2e.chaos.page import page
from e2e.chaos.timeline import NO_FAULT, SILENCE_MIN_S, Happened, Listening, Silence, Timeline


def test_a_client_that_is_heard_again_after_a_while_was_silent_and_a_short_pause_is_none() -> None:
    silences: list[Silence] = []
    listening = Listening("write a/0", silences)
    for at_s in (1.0, 1.0 + SILENCE_MIN_S / 2, 4.0):
        listening.heard(at_s)
    assert silences == [Silence("write a/0", 1.0 + SILENCE_MIN_S / 2, 4.0)]


def timeline(*silences: Silence) -> Timeline:
    faults = [
        Happened("owner killed", "produce-1 is killed", 10.0, 20.0, 25.0),
        Happened("store still", "it stands", 90.0),
    ]
    return Timeline(7, faults=faults, silences=list(silences))


def test_the_longest_silence_of_a_fault_overlaps_it_or_the_time_until_all_clients_continue() -> None:
    within, longer = Silence("a", 12.0, 14.0), Silence("b", 22.0, 27.0)
    late = Silence("c", 26.0, 28.0)
    still = Silence("d", 95.0, 96.0)
    found = timeline(within, longer, late, still).longest_by_fault()
    assert found == {"owner killed": longer, NO_FAULT: late, "store still": still}


def test_a_silence_of_two_faults_is_of_neither() -> None:
    lasting = timeline(Silence("a", 15.0, 95.0))
    assert lasting.longest_by_fault() == {}


def test_the_page_has_every_violation_and_fault_and_no_markup_of_theirs() -> None:
    run = timeline(Silence("<b>client</b>", 12.0, 14.0))
    run.violations.append("lost write: <script>1</script>")
    run.counts["records acknowledged"] = 1_234
    run.samples += [(0.0, {"records acknowledged": 0}), (5.0, {"records acknowledged": 1_000})]
    shown = page(run, "Chaos", "One minute.")
    assert "1 violations" in shown
    assert "lost write: &lt;script&gt;" in shown
    assert "<script" not in shown
    assert "<b>client" not in shown
    assert "produce-1 is killed" in shown
    assert "1,234" in shown
    assert "top: 200" in shown
