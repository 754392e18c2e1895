"""What agents are recognised by, and recognise us by: a folder of keys, made at the first start.

`hmac.key` signs tokens and sessions; an authority signs the certificate of the port that agents
dial. Allocator and actuator share the folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from spotline.adapters.agents.rotated_signer import RotatedSigner
from spotline.adapters.identity.authority import Authority, KeyAndChain
from spotline.adapters.identity.wall_clock import Now, utc_now
from spotline.contracts.errors import ConfigError


class AgentKeys:
    """The keys in a folder, made where they are missing.

    Parameters
    ----------
    folder
        Only its owner may look into it (0700).
    now
        The wall clock.

    Raises
    ------
    ConfigError
        The folder cannot be used, or holds something else.
    """

    def __init__(self, folder: Path, *, now: Now = utc_now) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o700)
            self.signer = RotatedSigner(folder, now=now)
            self._authority = Authority(folder, title="Spotline agents", now=now)
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(
                f"the keys of agents in {folder} cannot be used ({error}); name another folder, or "
                "remove it: agents that run then cannot be heard any more"
            ) from error

    @property
    def ca_pem(self) -> str:
        """The certificate that agents check ours against, PEM."""
        return self._authority.ca_pem

    def server_identity(self, hosts: Sequence[str]) -> KeyAndChain:
        """Key and certificate chain, PEM, of a server that is reached as any of `hosts`.

        Renewed where it has less than a year left, or is of other hosts.

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        return self._authority.server_identity(hosts, subject="Spotline allocator")

    def rotate(self, until: datetime | None) -> None:
        """Draw the signing key anew, while allocator and actuator run.

        Parameters
        ----------
        until
            What the present one has signed counts until then: sessions, and tokens of instances
            that have not joined yet. None: no more from now on.

        Raises
        ------
        ConfigError
            The folder cannot be used any more.
        """
        try:
            self.signer.rotate(until)
        except (OSError, ValueError) as error:
            raise ConfigError(f"the signing key of agents cannot be drawn anew: {error}") from error
