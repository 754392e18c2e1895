"""What every service is told: where its broker is, and where it shows its health."""

from __future__ import annotations

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class ServiceSettings(BaseSettings):
    """`SPOTLINE_*` that all services share; read once in `__main__`.

    `health_port` 0 takes any free port and says which in the log. `metrics` shows the metrics
    there too, at `/metrics`; traces, and the same metrics, go to `otlp_endpoint` where that is set.
    """

    model_config = SettingsConfigDict(env_prefix="SPOTLINE_", frozen=True, extra="forbid")

    nats_url: str = "nats://127.0.0.1:4222"
    partition: int = Field(default=0, ge=0)
    health_host: str = "127.0.0.1"
    health_port: int = Field(default=0, ge=0, le=65535)
    metrics: bool = True
    otlp_endpoint: str = ""
    log_level: str = Field(default="info", pattern="^(debug|info|warning|error)$")
