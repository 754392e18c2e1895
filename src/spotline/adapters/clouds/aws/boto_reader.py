"""`AwsReader` by boto3: the one place where its untyped answers come in."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from spotline.adapters.clouds.aws.calling import Answer, CallRefused
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsSettings
from spotline.contracts.errors import ConfigError, ProviderUnavailable, Throttled

INSTALL = (
    "boto3 is not installed: install Spotline with its extra for AWS, pip install spotline[aws]"
)

# Of EC2, of the JSON services and of STS.
THROTTLING_CODES = frozenset(
    {
        "EC2ThrottledException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "SlowDown",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# Token buckets of EC2 refill by the second; a few of them are enough for a read.
RETRY_AFTER_S = 5.0

SESSION_NAME = "spotline"
# An hour, the longest that roles allow which say nothing else.
ROLE_S = 3600


class BotoReader:
    """Implements `AwsReader` by boto3's clients, one for each account, region and service.

    Nothing is sent twice by itself: the caller decides what an unanswered call means. An account
    with a role is acted for by AssumeRole, renewed by botocore before it ends.
    """

    def __init__(self, settings: AwsSettings) -> None:
        self._settings = settings
        self._accounts = {account.name: account for account in settings.accounts}
        self._sessions: dict[str, Any] = {}
        self._clients: dict[tuple[str, str, str], Any] = {}
        self._making = threading.Lock()

    async def call(
        self, account: str, region: str, service: str, operation: str, **params: Any
    ) -> Answer:
        """As `AwsReader.call`; in a thread, since boto3 blocks."""
        return await asyncio.to_thread(self._call, (account, region, service), operation, params)

    def close(self) -> None:
        """Close the connections."""
        with self._making:
            for client in self._clients.values():
                client.close()
            self._clients.clear()

    def client(self, account: str, region: str, service: str) -> Any:
        """The boto3 client of a service, made once."""
        with self._making:
            key = (account, region, service)
            if key not in self._clients:
                self._clients[key] = self._made(account, region, service)
            return self._clients[key]

    def _call(self, where: tuple[str, str, str], operation: str, params: dict[str, Any]) -> Answer:
        client = self.client(*where)
        from botocore import xform_name
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

        try:
            answer: Answer = getattr(client, xform_name(operation))(**params)
        except ClientError as error:
            raise _refused(operation, error.response) from error
        except NoCredentialsError as error:
            raise ConfigError(
                "aws: expected credentials, by a profile, the environment or an instance's role, "
                "found none"
            ) from error
        except BotoCoreError as error:
            raise ProviderUnavailable(f"aws did not answer {operation}: {error}") from error
        return answer

    def _made(self, account: str, region: str, service: str) -> Any:
        settings = self._settings
        try:
            from botocore.config import Config
        except ImportError as error:
            raise ConfigError(INSTALL) from error
        config = Config(
            connect_timeout=settings.connect_timeout_s,
            read_timeout=settings.read_timeout_s,
            retries={"total_max_attempts": 1},
        )
        return self._session(account).client(
            service,
            region_name=region,
            config=config,
            endpoint_url=settings.endpoint_url or None,
        )

    def _session(self, name: str) -> Any:
        """The session that acts for an account."""
        if name not in self._sessions:
            import boto3

            account = self._accounts[name]
            plain = boto3.Session()
            self._sessions[name] = self._assumed(account) if account.role_arn else plain
        return self._sessions[name]

    def _assumed(self, account: AwsAccount) -> Any:
        """A session by a role; its credentials are asked for when they are first needed."""
        import boto3
        from botocore.credentials import (
            AssumeRoleCredentialFetcher,
            DeferredRefreshableCredentials,
        )
        from botocore.session import get_session

        source = get_session()
        extra = {"RoleSessionName": SESSION_NAME, "DurationSeconds": ROLE_S}
        if account.external_id:
            extra["ExternalId"] = account.external_id
        fetcher = AssumeRoleCredentialFetcher(
            client_creator=self._sts_client,
            source_credentials=source.get_credentials(),
            role_arn=account.role_arn,
            extra_args=extra,
        )
        acting = get_session()
        acting._credentials = DeferredRefreshableCredentials(
            method="assume-role", refresh_using=fetcher.fetch_credentials
        )
        return boto3.Session(botocore_session=acting)

    def _sts_client(self, service: str, **credentials: Any) -> Any:
        import boto3

        return boto3.Session().client(
            service,
            region_name=self._settings.offerings[0].region if self._settings.offerings else None,
            endpoint_url=self._settings.endpoint_url or None,
            **credentials,
        )


def _refused(operation: str, response: dict[str, Any]) -> ProviderUnavailable:
    """What an error that was answered means."""
    error = response.get("Error", {})
    code, message = str(error.get("Code", "")), str(error.get("Message", ""))
    if code in THROTTLING_CODES:
        headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        return Throttled("aws", _seconds(headers.get("retry-after", "")))
    return CallRefused(operation, code, message)


def _seconds(text: str) -> float:
    """The seconds that a header names, ours where it names none."""
    try:
        return max(0.0, float(text))
    except ValueError:
        return RETRY_AFTER_S
