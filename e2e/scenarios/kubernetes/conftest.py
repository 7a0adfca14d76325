"""One node for all scenarios, and one KafScale of the overlay `dev`, which each scenario leaves whole."""

from __future__ import annotations

from collections.abc import Generator, Iterator

import pytest

from e2e.harness.kubernetes.deployed import Deployed
from e2e.harness.kubernetes.node import FOLDER, Node
from e2e.harness.manifests import ROOT

NAMESPACE = "kafscale"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failed test shows its pods."""
    report = yield
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, Deployed):
                report.sections.append((f"pods of {name}", value.story()))
    return report


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    if not FOLDER.is_dir():
        pytest.fail("no namespaces for a node: run `make k8s-test`")
    node = Node()
    try:
        node.start()
        yield node
    finally:
        node.stop()


@pytest.fixture(scope="session")
def dev(node: Node) -> Deployed:
    """As the first lines of docs/kubernetes.md make it."""
    node.volumes(*(f"dev-{number}" for number in range(4)))
    node.kubectl("apply", "--kustomize", str(ROOT / "overlays" / "dev"))
    found = Deployed(node, NAMESPACE)
    found.wait_ready("statefulset/etcd", "statefulset/object-store")
    found.wait_ready()
    return found
