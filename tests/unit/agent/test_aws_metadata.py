import http.server
import threading

import pytest

from spotline.agent.aws_metadata import AwsMetadata
from spotline.agent.notices import LocalNotice
from spotline.contracts.errors import ContractError, ProviderUnavailable

ACTION = "/latest/meta-data/spot/instance-action"


class Service(http.server.BaseHTTPRequestHandler):
    """The metadata service, version 2, as AWS documents it."""

    def do_PUT(self):
        assert self.path == "/latest/api/token"
        assert int(self.headers["X-aws-ec2-metadata-token-ttl-seconds"]) > 0
        self.server.tokens += 1
        self._answer(200, f"token-{self.server.tokens}")

    def do_GET(self):
        if self.headers["X-aws-ec2-metadata-token"] != f"token-{self.server.tokens}":
            self._answer(401, "")
        elif self.path != ACTION or self.server.action is None:
            self._answer(404, "")
        else:
            self._answer(self.server.status, self.server.action)

    def _answer(self, status, text):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


class CutService(Service):
    """Ends within its answers."""

    def _answer(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text) + 1))
        self.end_headers()
        self.wfile.write(text.encode())


def metadata_at(url):
    # Nothing is measured, and a busy machine may take its time.
    return AwsMetadata("i-1", url, timeout_s=60)


@pytest.fixture(params=[Service])
def service(request):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), request.param) as server:
        server.tokens, server.action, server.status = 0, None, 200
        server.url = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_an_interruption_is_a_notice_with_its_deadline(service, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    metadata = metadata_at(service.url)
    assert metadata.read() == ()

    service.action = '{"action": "terminate", "time": "2026-09-18T08:22:00Z"}'

    expected = LocalNotice(
        notice_id="aws-terminate-2026-09-18T08:22:00Z",
        instance_ids=("i-1",),
        deadline_s=1_789_719_720.0,
    )
    assert metadata.read() == metadata.read() == (expected,)
    assert service.tokens == 1


def test_a_token_that_is_over_is_renewed(service):
    metadata = metadata_at(service.url)
    metadata.read()
    service.tokens += 1  # the service counts on: the old one is none of its any more
    service.action = '{"action": "stop", "time": "2026-09-18T08:22:00Z"}'

    assert len(metadata.read()) == 1


def test_a_service_that_fails_or_is_not_there_is_unavailable(service):
    service.action, service.status = "{}", 503
    with pytest.raises(ProviderUnavailable, match="503"):
        metadata_at(service.url).read()

    with pytest.raises(ProviderUnavailable):
        metadata_at("http://127.0.0.1:1").read()


@pytest.mark.parametrize("service", [CutService], indirect=True)
def test_a_service_that_ends_within_its_answer_is_unavailable(service):
    with pytest.raises(ProviderUnavailable, match="latest/api/token"):
        metadata_at(service.url).read()


@pytest.mark.parametrize("action", ["no json", "[]", '{"action": "stop"}', '{"time": 5}'])
def test_another_answer_than_the_documented_one_breaks_the_contract(service, action):
    service.action = action

    with pytest.raises(ContractError, match="spot/instance-action: expected an action"):
        metadata_at(service.url).read()


def test_the_endpoint_must_be_a_url():
    with pytest.raises(ValueError, match="AWS_EC2_METADATA_SERVICE_ENDPOINT must be an http URL"):
        AwsMetadata("i-1", "file:///etc/passwd")
