"""The transport `nats://` of Faust: registered in the entry-point group `faust.transports`.

app = faust.App("greetings", broker="nats://127.0.0.1:4222")
"""

from __future__ import annotations

from functools import cached_property
from importlib.metadata import version
from typing import Any

from faust.exceptions import ImproperlyConfigured
from faust.transport import base
from faust.types.enums import ProcessingGuarantee

from spotline.adapters.faust.changelog import ChangelogBuffer, Fences
from spotline.adapters.faust.conductor import Conductor
from spotline.adapters.faust.consumer import Consumer
from spotline.adapters.faust.options import DEFAULT_PORT, Options, parse_options
from spotline.adapters.faust.producer import Producer
from spotline.adapters.faust.session import Session
from spotline.adapters.faust.topics import Topics


class Transport(base.Transport):
    """Makes producer, consumer and conductor of an app, and holds what they share."""

    Consumer = Consumer
    Producer = Producer
    Conductor = Conductor

    default_port = DEFAULT_PORT
    driver_version = f"nats-py={version('nats-py')}"

    @cached_property
    def options(self) -> Options:
        """What the broker URL says.

        Raises
        ------
        ImproperlyConfigured
            The app asks for what this transport does not have.
        """
        conf = self.app.conf
        if conf.broker_credentials is not None or conf.ssl_context is not None:
            raise ImproperlyConfigured(
                "the nats:// transport takes user and password from the broker URL and knows no "
                "broker_credentials and no ssl_context"
            )
        if conf.producer_threaded:
            raise ImproperlyConfigured("the nats:// transport has no producer_threaded")
        guarantee: Any = conf.processing_guarantee
        if guarantee == ProcessingGuarantee.EXACTLY_ONCE:
            raise ImproperlyConfigured(
                "the nats:// transport has no transactions: keep the last applied offset in each "
                "table value, which makes tables exact, and leave processing_guarantee alone"
            )
        return parse_options(self.url)

    @cached_property
    def session(self) -> Session:
        """The connection; a producer of the same server shares the consumer's."""
        if self._main is not self:
            shared: Session = self._main.session
            return shared
        return Session(
            self.options.url,
            name=self.app.conf.broker_client_id,
            identity=self.options.identity(),
        )

    @cached_property
    def topics(self) -> Topics:
        """What is known of topics."""
        if self._main is not self:
            shared: Topics = self._main.topics
            return shared
        return Topics(self.session)

    @cached_property
    def fences(self) -> Fences:
        """Who may write which changelog."""
        if self._main is not self:
            shared: Fences = self._main.fences
            return shared
        return Fences(self.session)

    @cached_property
    def changes(self) -> ChangelogBuffer:
        """Changes of tables that are not yet written."""
        if self._main is not self:
            shared: ChangelogBuffer = self._main.changes
            return shared
        return ChangelogBuffer()

    @property
    def _main(self) -> Any:
        """The app's consumer transport, if it is one of these on the same server, else this."""
        main: Any = self.app.transport
        return main if isinstance(main, Transport) and main.url == self.url else self
