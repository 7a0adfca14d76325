"""What the overlays and the chart make is in k8s/rendered, so that a review sees what a change does to the objects."""

from __future__ import annotations

import pytest

from tools.gen_k8s_rendered import RENDERED, files

pytestmark = pytest.mark.timeout(300)


def test_the_rendered_files_are_what_the_overlays_and_the_chart_make() -> None:
    made = files()
    assert sorted(made) == sorted(RENDERED.glob("*.yaml"))
    differ = [path.name for path, text in made.items() if path.read_text() != text]
    assert not differ, f"{differ} are not current: run `make gen`, and look at what changed"
