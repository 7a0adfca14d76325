"""A SCRAM client, written from RFC 5802: the oracle of the server. It computes with hashlib and hmac alone."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass


@dataclass
class ScramClient:
    """`hash_name` is hashlib's. It raises AssertionError for a server that does not know the password."""

    hash_name: str
    user: str
    password: str
    nonce: str
    header: str = "n,,"
    extensions: str = ""

    def first(self) -> bytes:
        name = self.user.replace("=", "=3D").replace(",", "=2C")
        self.bare = f"n={name},r={self.nonce}{self.extensions}"
        return (self.header + self.bare).encode()

    def final(self, server_first: bytes, *, nonce: str | None = None, extensions: str = "") -> bytes:
        text = server_first.decode()
        self.fields = dict(part.split("=", 1) for part in text.split(","))
        assert self.fields["r"].startswith(self.nonce)
        binding = base64.b64encode(self.header.encode()).decode()
        bare = f"c={binding},r={nonce or self.fields['r']}{extensions}"
        self.auth_message = f"{self.bare},{text},{bare}".encode()
        salt, iterations = base64.b64decode(self.fields["s"]), int(self.fields["i"])
        self.salted = hashlib.pbkdf2_hmac(self.hash_name, self.password.encode(), salt, iterations)
        client_key = self._hmac(self.salted, b"Client Key")
        signature = self._hmac(hashlib.new(self.hash_name, client_key).digest(), self.auth_message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{bare},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        signature = self._hmac(self._hmac(self.salted, b"Server Key"), self.auth_message)
        assert server_final == b"v=" + base64.b64encode(signature)

    def _hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.new(key, data, self.hash_name).digest()
