"""kubectl as an operator runs it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from e2e.harness.manifests import Manifest, kubectl

COMMAND_TIMEOUT_S: Final = 600
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Call it with the words of a command; it returns what the command prints. A failure is an AssertionError.

    With a namespace, kubectl refuses objects that name another one.
    """

    config: str
    namespace: str | None = None

    def within(self, namespace: str) -> Kubectl:
        return replace(self, namespace=namespace)

    def __call__(self, *words: str, stdin: str | None = None) -> str:
        done = self._run(words, stdin)
        assert done.returncode == 0, f"kubectl {' '.join(words)}:\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
        return done.stdout

    def succeeds(self, *words: str, stdin: str | None = None) -> bool:
        return self._run(words, stdin).returncode == 0

    def refused(self, *words: str, stdin: str | None = None) -> str:
        """The reason why a command fails."""
        done = self._run(words, stdin)
        assert done.returncode != 0, f"kubectl {' '.join(words)} succeeded: {done.stdout[-2000:]}"
        return done.stderr

    def apply(self, *objects: Manifest, dry_run: bool = False) -> str:
        """A line for each object. A warning of the API server is a failure; kubectl's own, about objects that were made
        by an apply of another kind, is none."""
        words = ["apply", "--server-side", "--force-conflicts", "--filename", "-"]
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        done = self._run([*words, *(["--dry-run=server"] if dry_run else [])], json.dumps(listed))
        assert done.returncode == 0, f"kubectl apply: {done.stderr[-3000:]}"
        warnings = [
            line for line in done.stderr.splitlines() if "Warning" in line and LAST_APPLIED not in line
        ]
        assert warnings == []
        return done.stdout

    def get(self, *words: str) -> dict[str, Any]:
        """One object, or a list of them."""
        found: dict[str, Any] = json.loads(self("get", *words, "--output", "json"))
        return found

    def items(self, *words: str) -> list[Manifest]:
        found: list[Manifest] = self.get(*words)["items"]
        return found

    def _run(self, words: Sequence[str], stdin: str | None) -> subprocess.CompletedProcess[str]:
        within = [] if self.namespace is None else ["--namespace", self.namespace]
        return subprocess.run(
            [kubectl(), "--kubeconfig", self.config, *within, *words],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
