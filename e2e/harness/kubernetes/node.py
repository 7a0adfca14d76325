"""The programs of a Kubernetes of one node, in the namespaces that `e2e/kubernetes/inside.sh` has made.

The containers end with the first process of the namespaces.
"""

from __future__ import annotations

import shutil
import subprocess
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from e2e.harness.kubernetes import parts
from e2e.harness.kubernetes.certificates import NODE, NODE_ADDRESS, Certificates
from e2e.harness.kubernetes.kubectl import Kubectl
from e2e.harness.services import NotYet, until

FOLDER: Final = Path("/run/k8s-test")
MANIFESTS: Final = parts.ROOT / "e2e" / "kubernetes"
STARTED_TIMEOUT_S: Final = 180.0
IMPORT_TIMEOUT_S: Final = 600.0
ETCD: Final = "http://127.0.0.1:12379"
ETCD_PEERS: Final = "http://127.0.0.1:12380"
CTR: Final = ("ctr", "--address", str(FOLDER / "containerd.sock"), "--namespace", "k8s.io")


@dataclass(slots=True)
class Node:
    """Starts empty. `kubectl` has all rights."""

    certificates: Certificates = field(default_factory=lambda: Certificates(FOLDER / "certificates"))
    kubectl: Kubectl = field(init=False)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.kubectl = Kubectl(self.certificates.path("admin.json"))

    def start(self) -> None:
        """Returns when the node is ready, has the images, and resolves names. A node that runs already goes on."""
        if self.certificates.folder.is_dir():
            return
        self.certificates.make()
        self._start_runtime()
        self._start_control_plane()
        self._start_node()
        for name in ("storage", "dns", "metrics"):
            self.kubectl("apply", "--filename", str(MANIFESTS / "cluster" / f"{name}.yaml"))
        self.kubectl("wait", "--for=condition=Ready", f"node/{NODE}", "--timeout=3m")
        for name in ("coredns", "metrics-server"):
            self.kubectl(
                "--namespace", "kube-system", "rollout", "status", f"deployment/{name}", "--timeout=3m"
            )

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def volumes(self, *names: str) -> None:
        """Makes empty volumes of 20 GiB, in folders of the node."""
        selector = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
        for name in names:
            path = FOLDER / "volumes" / name
            path.mkdir(parents=True, exist_ok=True)
            self.kubectl.apply(
                {
                    "apiVersion": "v1",
                    "kind": "PersistentVolume",
                    "metadata": {"name": name},
                    "spec": {
                        "storageClassName": "local",
                        "accessModes": ["ReadWriteOnce"],
                        "capacity": {"storage": "20Gi"},
                        "local": {"path": str(path)},
                        "nodeAffinity": {
                            "required": {"nodeSelectorTerms": [{"matchExpressions": [selector]}]}
                        },
                    },
                }
            )

    def process_of(self, container: str) -> int:
        """The process id of a container, as this machine sees it."""
        listed = run(*CTR, "tasks", "ls")
        [pid] = [int(line.split()[1]) for line in listed.splitlines() if line.split()[0] == container]
        return pid

    def story(self) -> str:
        """The ends of the programs' logs."""
        logs = sorted((FOLDER / "log").glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}" for log in logs)

    def _start_runtime(self) -> None:
        network = FOLDER / "network"
        network.mkdir()
        shutil.copy(MANIFESTS / "node" / "bridge.conflist", network)
        self._start("containerd", "containerd", "--config", str(MANIFESTS / "node" / "containerd.toml"))
        self._until("containerd answers", lambda: answers(*CTR, "version"))
        run(*CTR, "images", "import", str(parts.images()), timeout_s=IMPORT_TIMEOUT_S)

    def _start_control_plane(self) -> None:
        data = FOLDER / "etcd"
        data.mkdir(mode=0o700)
        self._start(
            *("etcd", str(parts.etcd()), "--name", "k8s", "--data-dir", str(data), "--log-level", "warn"),
            *("--listen-client-urls", ETCD, "--advertise-client-urls", ETCD),
            *("--listen-peer-urls", ETCD_PEERS, "--initial-advertise-peer-urls", ETCD_PEERS),
            *("--initial-cluster", f"k8s={ETCD_PEERS}", "--unsafe-no-fsync"),
        )
        self._until("etcd answers", lambda: healthy(f"{ETCD}/health"))
        self._start("apiserver", self._program("kube-apiserver"), *self._api_server_flags())
        self._until("the API server is ready", lambda: self.kubectl.succeeds("get", "--raw", "/readyz"))
        self._start(
            *("controllers", self._program("kube-controller-manager"), *self._identity("controllers")),
            *("--use-service-account-credentials", "--leader-elect=false", "--allocate-node-cidrs=false"),
            *("--service-account-private-key-file", self.certificates.path("service-accounts.key")),
            *("--root-ca-file", self.certificates.path("ca.crt")),
            *("--bind-address", "127.0.0.1", "--cert-dir", str(FOLDER / "controllers")),
            # Nodes without a kubelet stay ready, and autoscalers answer within seconds.
            *("--node-monitor-grace-period", "24h", "--horizontal-pod-autoscaler-sync-period", "5s"),
        )
        self._start(
            *("scheduler", self._program("kube-scheduler"), *self._identity("scheduler")),
            *("--leader-elect=false", "--bind-address", "127.0.0.1", "--cert-dir", str(FOLDER / "scheduler")),
        )

    def _identity(self, name: str) -> list[str]:
        config = self.certificates.path(f"{name}.json")
        return [
            flag
            for use in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
            for flag in (f"--{use}", config)
        ]

    def _api_server_flags(self) -> list[str]:
        files = {
            "tls-cert-file": "apiserver.crt",
            "tls-private-key-file": "apiserver.key",
            "client-ca-file": "ca.crt",
            "kubelet-client-certificate": "apiserver-kubelet.crt",
            "kubelet-client-key": "apiserver-kubelet.key",
            "kubelet-certificate-authority": "ca.crt",
            "service-account-key-file": "service-accounts.crt",
            "service-account-signing-key-file": "service-accounts.key",
            "requestheader-client-ca-file": "ca.crt",
            "proxy-client-cert-file": "front-proxy.crt",
            "proxy-client-key-file": "front-proxy.key",
        }
        values = {
            "etcd-servers": ETCD,
            "bind-address": NODE_ADDRESS,
            "advertise-address": NODE_ADDRESS,
            "endpoint-reconciler-type": "lease",
            "service-cluster-ip-range": "10.96.0.0/16",
            "service-account-issuer": "https://kubernetes.default.svc",
            "kubelet-preferred-address-types": "InternalIP",
            "requestheader-allowed-names": "front-proxy",
            "requestheader-extra-headers-prefix": "X-Remote-Extra-",
            "requestheader-group-headers": "X-Remote-Group",
            "requestheader-username-headers": "X-Remote-User",
            "authorization-mode": "Node,RBAC",
            "enable-admission-plugins": "NodeRestriction",
            "enable-aggregator-routing": "true",
            "allow-privileged": "true",
            "cert-dir": str(FOLDER / "apiserver"),
        } | {flag: self.certificates.path(name) for flag, name in files.items()}
        return [f"--{flag}={value}" for flag, value in values.items()]

    def _start_node(self) -> None:
        self._start(
            *("kubelet", self._program("kubelet"), "--config", str(MANIFESTS / "node" / "kubelet.yaml")),
            *("--kubeconfig", self.certificates.path(f"{NODE}.json"), "--root-dir", str(FOLDER / "kubelet")),
            *("--cert-dir", str(FOLDER / "kubelet-certificates"), "--hostname-override", NODE),
            *("--node-ip", NODE_ADDRESS, "--node-labels", "topology.kubernetes.io/zone=z1"),
        )
        self._start("proxy", self._program("kube-proxy"), "--config", str(MANIFESTS / "node" / "proxy.yaml"))
        self._until("the node is registered", lambda: self.kubectl.succeeds("get", f"node/{NODE}"))

    def _program(self, name: str) -> str:
        return str(parts.programs() / name)

    def _start(self, name: str, *command: str) -> None:
        path = FOLDER / "log" / f"{name}.log"
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as log:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _until(self, what: str, condition: Callable[[], bool]) -> None:
        def holds() -> bool:
            ended = [name for name, process in self._processes.items() if process.poll() is not None]
            assert not ended, f"{ended} ended\n{self.story()}"
            return condition()

        try:
            until(what, holds, STARTED_TIMEOUT_S)
        except NotYet as late:
            raise AssertionError(f"{late}\n{self.story()}") from late


def run(*command: str, timeout_s: float = 60.0) -> str:
    """What it prints."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def answers(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
