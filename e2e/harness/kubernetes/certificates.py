"""The certificates of a Kubernetes: an authority, its programs' and users' certificates, and their kubeconfigs.

Kubernetes reads the user of a certificate from its common name, and the user's groups from its organization.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trustme

NODE: Final = "node1"
NODE_ADDRESS: Final = "10.243.0.1"
SERVER: Final = f"https://{NODE_ADDRESS}:6443"
FIRST_SERVICE: Final = "10.96.0.1"
"""The address at which pods find the API server."""


@dataclass(frozen=True, slots=True)
class Certificates:
    """`NAME.crt` and `NAME.key` of each, and the kubeconfig `NAME.json` of those that use the API."""

    folder: Path

    def make(self) -> None:
        self.folder.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.crt")
        authority.private_key_pem.write_to_path(self.folder / "ca.key")
        names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
        self._issue(
            authority, "apiserver", "kube-apiserver", *names, "127.0.0.1", FIRST_SERVICE, NODE_ADDRESS
        )
        self._issue(authority, "front-proxy", "front-proxy")
        self._issue(authority, "service-accounts", "service-accounts")
        for name, user, group in (
            ("admin", "admin", "system:masters"),
            ("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
            ("controllers", "system:kube-controller-manager", None),
            ("scheduler", "system:kube-scheduler", None),
            ("proxy", "system:kube-proxy", None),
        ):
            self._issue(authority, name, user, group=group)
            self._configure(name)
        self._issue(authority, NODE, f"system:node:{NODE}", NODE, NODE_ADDRESS, group="system:nodes")
        self._configure(NODE)

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def _issue(
        self, authority: trustme.CA, name: str, user: str, *identities: str, group: str | None = None
    ) -> None:
        identities = identities or (
            f"{name}.client",
        )  # Go refuses a certificate whose list of names is empty
        issued = authority.issue_cert(*identities, common_name=user, organization_name=group)
        issued.cert_chain_pems[0].write_to_path(self.folder / f"{name}.crt")
        issued.private_key_pem.write_to_path(self.folder / f"{name}.key")

    def _configure(self, name: str) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": SERVER, "certificate-authority": self.path("ca.crt")}}
            ],
            "users": [
                {
                    "name": name,
                    "user": {
                        "client-certificate": self.path(f"{name}.crt"),
                        "client-key": self.path(f"{name}.key"),
                    },
                }
            ],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": name}}],
            "current-context": "c",
        }
        (self.folder / f"{name}.json").write_text(json.dumps(config))
