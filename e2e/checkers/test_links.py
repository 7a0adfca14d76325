"""Each link from a page to a file of the tree, and to a heading there, leads somewhere; each module named is there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\]\(([^)\s:]+)\)")
MODULE = re.compile(r"`([\w./…-]+\.py)`")
TOLD = ("CHANGELOG.md", "docs/adr/", "docs/performance-history.md")
"""Pages that tell of the tree as it was."""
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def anchors(page: Path) -> set[str]:
    """What a link's fragment may name: the headings in the form that a web page gives them, and marks by hand."""
    text = page.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in HEADING.findall(text)
    }
    return headings | set(re.findall(r'id="([^"]+)"', text))


def dead_links(page: Path) -> list[str]:
    dead = []
    for link in LINK.findall(page.read_text()):
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        lost = fragment and target.suffix == ".md" and target.is_file() and fragment not in anchors(target)
        if lost or not target.exists():
            dead.append(f"{page.relative_to(ROOT)}: {link}")
    return dead


def tracked(pattern: str) -> list[str]:
    """The files of the tree, with those that are deleted and not yet committed."""
    listed = ["git", "ls-files", pattern]
    return subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def test_each_link_of_a_page_leads_to_a_file_and_a_heading() -> None:
    pages = tracked("*.md")
    assert len(pages) > 50
    assert [dead for page in pages if (ROOT / page).exists() for dead in dead_links(ROOT / page)] == []


def test_the_map_of_the_documents_has_every_page() -> None:
    docs = ROOT / "docs"
    named = {(docs / link).resolve() for link in LINK.findall((docs / "README.md").read_text())}
    pages = {page for page in docs.rglob("*.md") if page != docs / "README.md"}
    assert {str(page.relative_to(ROOT)) for page in pages - named} == set()


def test_each_module_that_a_page_names_is_there() -> None:
    """By the end of its path: `handlers/produce.py`; `…` stands for folders."""
    modules = "\n".join(f"/{path}" for path in tracked("*.py") if (ROOT / path).exists())
    named = [
        (page, name)
        for page in tracked("*.md")
        if not page.startswith(TOLD) and (ROOT / page).exists()
        for name in MODULE.findall((ROOT / page).read_text())
    ]
    assert len(named) > 100
    gone = [f"{page}: {name}" for page, name in named if not re.search(ending(name), modules, re.MULTILINE)]
    assert gone == []


def ending(name: str) -> str:
    """`produce/log/writer.py` is below `kafscale/produce`, or below `services/produce`."""
    first, _, rest = name.partition("/")
    words = [re.escape(first), re.escape(rest)] if rest else [re.escape(first)]
    return "/" + "/(.*/)?".join(words).replace("…", ".*") + "$"
