"""The command with SASL/OAUTHBEARER: its tokens come from a file, and reach librdkafka and the requests by hand.

Laws: with a good token every command works. A refused token, and a file that is not there, end the command with a
sentence. No output has a token.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from e2e.harness.cluster import KAFSCALE
from e2e.harness.deployment import Deployment

ISSUER, AUDIENCE = "https://issuer.example", "kafka"
COMMAND_S: Final = 120.0
MODULE: Final = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

pytestmark = pytest.mark.timeout(300)


@dataclass(frozen=True, slots=True)
class Tokens:
    """A cluster that takes them, and the key that signs them."""

    folder: Path
    key: ec.EllipticCurvePrivateKey

    def signed(self, **claims: object) -> str:
        now = int(time.time())
        known = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 600}
        return jwt.encode({**known, **claims}, self.key, algorithm="ES256", headers={"kid": "k"})

    def run(self, line: str, token: str | None, lines: str = "") -> subprocess.CompletedProcess[str]:
        """`token` None: the file is not there."""
        held, config = self.folder / "token", self.folder / "client.properties"
        held.unlink(missing_ok=True)
        if token is not None:
            held.write_text(token)
        config.write_text(
            "security.protocol=SASL_PLAINTEXT\n"
            "sasl.mechanism=OAUTHBEARER\n"
            f"sasl.jaas.config={MODULE} required;\n"
            f"sasl.oauthbearer.token.endpoint.url={held.as_uri()}\n"
            f"bootstrap.servers={(self.folder / 'bootstrap').read_text()}\n"
        )
        return subprocess.run(
            [*KAFSCALE, *line.split(), "--command-config", str(config)],
            input=lines,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tokens]:
    folder = tmp_path_factory.mktemp("tokens")
    key = ec.generate_private_key(ec.SECP256R1())
    public = jwt.algorithms.ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    keys = folder / "jwks.json"
    keys.write_text(json.dumps({"keys": [{**public, "kid": "k", "use": "sig", "alg": "ES256"}]}))
    deployment = Deployment(folder / "deployment", 1, on_s3=False)
    (folder / "bootstrap").write_text(deployment.bootstrap)
    try:
        deployment.start_etcd()
        deployment.start_services(
            {
                "KAFSCALE_LISTENERS": f"SASL_PLAINTEXT://{deployment.bootstrap}",
                "KAFSCALE_SASL_ENABLED_MECHANISMS": "OAUTHBEARER",
                "KAFSCALE_SASL_OAUTHBEARER_JWKS_ENDPOINT_URL": keys.as_uri(),
                "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_ISSUER": ISSUER,
                "KAFSCALE_SASL_OAUTHBEARER_EXPECTED_AUDIENCE": AUDIENCE,
            }
        )
        deployment.wait_ready()
        yield Tokens(folder, key)
    finally:
        deployment.kill()


def test_with_a_token_every_kind_of_command_works(tokens: Tokens) -> None:
    token = tokens.signed()
    for line, lines in (
        ("topics create orders", ""),
        ("groups list", ""),
        ("produce orders", "one\n"),
        ("consume orders --exit", ""),
    ):
        done = tokens.run(line, token, lines)
        assert done.returncode == 0, (line, done.stderr)
        assert token not in done.stdout + done.stderr
    assert done.stdout == "one\n"


@pytest.mark.parametrize("line", ["topics list", "produce orders", "consume orders --exit"])
def test_without_a_good_token_the_command_ends_with_a_sentence(tokens: Tokens, line: str) -> None:
    stale = tokens.signed(exp=int(time.time()) - 600)
    for token, reason in ((stale, "invalid_token"), (None, "No such file")):
        done = tokens.run(line, token, "one\n")
        assert done.returncode == 1
        assert reason in done.stderr
        assert len(done.stderr.splitlines()) == 1
        assert stale not in done.stderr
