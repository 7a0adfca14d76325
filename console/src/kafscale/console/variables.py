"""The console's settings as variables: `kafscale up` and containers start it without a command line."""

from __future__ import annotations

from pathlib import Path

from kafscale.access.protocol import SecurityProtocol
from kafscale.console.settings import HOST, PORT
from kafscale.runtime.addresses import split_address
from pydantic import Field, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict


class ConsoleVariables(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="KAFSCALE_CONSOLE_", frozen=True, extra="ignore")

    bootstrap_servers: str = Field("127.0.0.1:9092", description="host:port of a front door.")
    security_protocol: SecurityProtocol = Field(
        SecurityProtocol.PLAINTEXT,
        description="Of that address, without `command_config`. With SASL each person logs in.",
    )
    command_config: Path | None = Field(
        None,
        description="File of settings as Kafka's tools take them. Without sasl.jaas.config each person logs in.",
    )
    ca: Path | None = Field(
        None, description="CA that signed the front doors' certificates (PEM), without `command_config`."
    )
    port: int = Field(PORT, ge=0, le=65_535, description="Port of the page.")
    listen: str = Field(HOST, description="Address to listen on.")
    read_only: bool = Field(False, description="Without everything that changes the cluster.")
    everyone_acts_as_profile: bool = Field(
        False, description="With `read_only`: everyone acts as the user of `command_config`."
    )
    direct: bool = Field(
        True, description="Read etcd and the object store, which the settings of every service name."
    )
    tls_certificate: Path | None = Field(None, description="Certificate chain of the page (PEM).")
    tls_key: Path | None = Field(None, description="Its key (PEM).")
    behind_proxy: str | None = Field(
        None, description="Address of the page in browsers, if a proxy or a published port is in front of it."
    )
    schema_registry: str | None = Field(
        None,
        description="URL of a registry of schemas as Confluent's; records of its serializers are decoded.",
    )
    schema_registry_login: Path | None = Field(None, description="File with user:password for it.")
    http_listen: str | None = Field(
        None, description="Address of /livez, /readyz and /metrics. Default: nowhere."
    )

    @field_validator("http_listen")
    @classmethod
    def _is_address(cls, address: str | None) -> str | None:
        if address is not None:
            split_address(address)
        return address
