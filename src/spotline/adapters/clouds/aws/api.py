"""The calls of AWS: the only place that knows boto3. What it answers is plain values.

botocore sends each call once. Its own repeats would hold one of our few threads while they wait, and
multiply the load of a service that asks us to slow down; a launch is repeated by the actuator, with
the same token, and a reading call here.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import Any, Protocol

from spotline.adapters.clouds.aws.errors import AwsRefused, NoAnswer, NotReached, is_passing
from spotline.adapters.clouds.aws.settings import AwsAccount, AwsSettings
from spotline.contracts.errors import ConfigError

Reply = Mapping[str, Any]
"""An answer, or a part of it, as botocore's model names its members."""

CALLS: Mapping[str, tuple[str, ...]] = {
    "ec2": (
        *("create_fleet", "terminate_instances", "describe_instances"),
        *("describe_availability_zones", "describe_instance_types"),
    ),
    "sqs": ("receive_message", "delete_message_batch"),
    "sts": ("assume_role",),
    "service-quotas": ("get_service_quota",),
}
"""All that the actuator calls, by service: what the policy in `deploy/aws` has to allow."""

_MOST_THREADS = 16
_READ_TRIES = 3
_FIRST_WAIT_S = 0.2
# Credentials of a role are renewed this long before they expire; a session lasts an hour.
_RENEW_S = 300
_MARGIN_S = 5.0


@dataclass(frozen=True, slots=True, order=True)
class AwsPlace:
    """Where a call goes: an account by its name in the settings, and a region."""

    account: str
    region: str

    def __str__(self) -> str:
        return f"{self.account}/{self.region}"


class AwsApi(Protocol):
    """Performs calls of AWS."""

    async def call(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call once; `operation` is one of `CALLS`.

        Raises
        ------
        AwsRefused
            AWS says no.
        NotReached
            It never got there.
        NoAnswer
            It was sent, and nobody knows what it did.
        """
        ...

    async def read(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call what changes nothing; again, a few times, where AWS failed; errors as `call`."""
        ...

    def start(self, work: Callable[[], None]) -> Future[None]:
        """Do something that calls and waits, in a thread."""
        ...

    def call_now(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call from a thread; as `call`."""
        ...

    def close(self) -> None:
        """Let go of connections and threads."""
        ...


class BotoApi:
    """Implements `AwsApi` with boto3: a client per place and service, made when it is first used.

    `calls` are those that may be made, by service.

    Raises
    ------
    ConfigError
        boto3 is not installed.
    """

    def __init__(self, settings: AwsSettings, calls: Mapping[str, tuple[str, ...]] = CALLS) -> None:
        self._calls = calls
        self._boto3, self._exceptions = _imported()
        self._settings = settings
        self._accounts = {account.name: account for account in settings.accounts}
        self._sessions: dict[str, Any] = {}
        self._clients: dict[tuple[AwsPlace, str], Any] = {}
        # A session makes clients for one thread at a time, and may have to assume a role first: no
        # account waits for another's.
        self._making = {account.name: threading.RLock() for account in settings.accounts}
        self._keeping = threading.Lock()
        self._closed = False
        # Each queue keeps a thread waiting: no call may have to wait for those.
        queues = sum(len(account.queues) for account in settings.accounts)
        self._threads = ThreadPoolExecutor(_MOST_THREADS + queues, thread_name_prefix="aws")

    async def call(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call once, in a thread."""
        work = self._threads.submit(self.call_now, place, service, operation, **params)
        settings = self._settings
        # A client may have to be made first, and a role assumed.
        longest_s = 2 * (settings.connect_timeout_s + settings.read_timeout_s) + _MARGIN_S
        try:
            async with asyncio.timeout(longest_s):
                return await asyncio.wrap_future(work)
        except TimeoutError as error:
            raise NoAnswer(f"{operation}: no answer within {longest_s} s") from error

    async def read(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call what changes nothing."""
        wait_s = _FIRST_WAIT_S
        for _ in range(_READ_TRIES - 1):
            try:
                return await self.call(place, service, operation, **params)
            except (AwsRefused, NotReached, NoAnswer) as error:
                if not is_passing(error):
                    raise
                await asyncio.sleep(wait_s)
                wait_s *= 2
        return await self.call(place, service, operation, **params)

    def start(self, work: Callable[[], None]) -> Future[None]:
        """Do something in a thread."""
        return self._threads.submit(work)

    def call_now(self, place: AwsPlace, service: str, operation: str, **params: Any) -> Reply:
        """Call in this thread."""
        if operation not in self._calls.get(service, ()):
            raise ValueError(
                f"operation must be one of {self._calls.get(service, ())}, was {operation!r}"
            )
        with _translated(self._exceptions, operation):
            answer: Reply = getattr(self._client(place, service), operation)(**params)
        return answer

    def close(self) -> None:
        """Close all connections; what is under way in a thread ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._keeping:
            self._closed = True
            while self._clients:
                self._clients.popitem()[1].close()

    def _client(self, place: AwsPlace, service: str) -> Any:
        making = self._making.get(place.account)
        if making is None:
            said = f"account {place.account} is not in the settings"
            raise AwsRefused("AuthFailure", said, status=401)
        with making:
            made = self._clients.get((place, service))
            if made is None:
                account = self._accounts[place.account]
                made = self._made(self._session(account, place.region), place.region, service)
                self._keep(place, service, made)
            return made

    def _keep(self, place: AwsPlace, service: str, made: Any) -> None:
        with self._keeping:
            if self._closed:
                made.close()
                raise NotReached(f"{service} in {place}: connections are closed")
            self._clients[place, service] = made

    def _made(self, session: Any, region: str, service: str) -> Any:
        from botocore.config import Config

        return session.client(
            service,
            region_name=region,
            endpoint_url=self._settings.endpoint_url or None,
            config=Config(
                connect_timeout=self._settings.connect_timeout_s,
                read_timeout=self._settings.read_timeout_s,
                retries={"total_max_attempts": 1, "mode": "standard"},
                max_pool_connections=_MOST_THREADS,
                user_agent_extra="spotline",
            ),
        )

    def _session(self, account: AwsAccount, region: str) -> Any:
        session = self._sessions.get(account.name)
        if session is None:
            session = self._boto3.session.Session()
            if account.role_arn:
                session = self._assuming(session, account, region)
            self._sessions[account.name] = session
        return session

    def _assuming(self, base: Any, account: AwsAccount, region: str) -> Any:
        """A session that acts as the account's role; it is renewed before it expires."""
        from botocore.credentials import RefreshableCredentials
        from botocore.session import get_session

        # Not under its own name: who asks for that acts as the role.
        key = AwsPlace(account.name, region), "sts, to assume a role"
        sts = self._clients.get(key)
        if sts is None:
            sts = self._made(base, region, "sts")
            self._keep(*key, sts)
        external = {"ExternalId": account.external_id} if account.external_id else {}

        def assumed() -> dict[str, str]:
            with _translated(self._exceptions, "assume_role"):
                answer = sts.assume_role(
                    RoleArn=account.role_arn, RoleSessionName="spotline", **external
                )
            granted = answer["Credentials"]
            return {
                "access_key": granted["AccessKeyId"],
                "secret_key": granted["SecretAccessKey"],
                "token": granted["SessionToken"],
                "expiry_time": granted["Expiration"].isoformat(),
            }

        first = assumed()
        core = get_session()
        # There is no public way to give a session credentials that renew themselves.
        core._credentials = RefreshableCredentials(
            first["access_key"],
            first["secret_key"],
            first["token"],
            datetime.fromisoformat(first["expiry_time"]),
            assumed,
            "sts-assume-role",
            time_fetcher=lambda: _wall_now(),
            advisory_timeout=2 * _RENEW_S,
            mandatory_timeout=_RENEW_S,
        )
        return self._boto3.session.Session(botocore_session=core)


def _wall_now() -> datetime:
    """Sessions expire by the clocks of those who sign: by wall time, also in a rehearsal."""
    return datetime.fromtimestamp(time.time(), tz=UTC)


def _imported() -> tuple[Any, ModuleType]:
    try:
        import boto3
        from botocore import exceptions
    except ImportError as error:
        raise ConfigError(
            "the cloud aws needs boto3, which is not installed: pip install 'spotline[aws]'"
        ) from error
    return boto3, exceptions


class _translated:
    """Turns what botocore raises into the errors of this package."""

    def __init__(self, exceptions: Any, operation: str) -> None:
        self._exceptions, self._operation = exceptions, operation

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(
            error, (AwsRefused, NotReached, NoAnswer)
        ):
            raise translated(self._exceptions, self._operation, error) from error


def translated(exceptions: Any, operation: str, error: Exception) -> Exception:
    """What an error of botocore's is called here; any other is itself."""
    said = f"{operation}: {error}"
    match error:
        case exceptions.ClientError():
            return _refused(error)
        case exceptions.NoCredentialsError() | exceptions.PartialCredentialsError():
            return AwsRefused("AuthFailure", said, status=401)
        case exceptions.CredentialRetrievalError() | exceptions.TokenRetrievalError():
            return AwsRefused("AuthFailure", said, status=401)
        case exceptions.ParamValidationError():
            return AwsRefused("InvalidParameterValue", said)
        # A certificate is refused before anything is sent.
        case exceptions.ConnectTimeoutError() | exceptions.EndpointConnectionError():
            return NotReached(said)
        case exceptions.SSLError() | exceptions.ProxyConnectionError():
            return NotReached(said)
        case exceptions.BotoCoreError() | OSError():
            return NoAnswer(said)
        case _:
            return error


def _refused(error: Any) -> AwsRefused:
    said = error.response.get("Error", {})
    meta = error.response.get("ResponseMetadata", {})
    headers = meta.get("HTTPHeaders", {})
    after = str(headers.get("retry-after", ""))
    return AwsRefused(
        str(said.get("Code", "")),
        str(said.get("Message", "")),
        status=int(meta.get("HTTPStatusCode", 400)),
        # It may also be a date, which tells no more than that it is not now.
        retry_after_s=int(after) if after.isdigit() else 0,
    )
