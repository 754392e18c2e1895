"""The rig: Acme as its documentation describes it, in memory, and what a test can make it do."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from docs.clouds.template.client import AcmeCloud
from docs.clouds.template.errors import _CLASSES, AcmeError, AcmeNoAnswer
from docs.clouds.template.settings import AcmeSettings
from spotline.application.cloud_actuator.messages import Moment
from spotline.application.cloud_actuator.ports import CloudProvider, Instance
from spotline.domain.events.capacity import RefusalClass
from spotline.domain.units import NS_PER_S
from tests.fakes.actuator import moment
from tests.fakes.cloud_rigs import CloudRig


class AcmeServer:
    """Implements `AcmeApi`; it outlives the processes that call it."""

    def __init__(self, lead_s: int) -> None:
        self.lead_s, self.now_s = lead_s, 0
        self.stock = {"spot": 8, "on_demand": 8}
        self.rows: dict[str, dict[str, Any]] = {}
        self.answers: dict[str, tuple[Any, Any]] = {}
        self.told: list[dict[str, Any]] = []
        self.next_error: Exception | None = None
        self.lost_after = False

    async def create(self, key: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """Create machines, or refuse."""
        self._fail()
        if key not in self.answers:
            self.answers[key] = (dict(body), self._made(body))
        asked, answer = self.answers[key]
        if asked != dict(body):
            raise AcmeError("key_reused", f"{key} was used for another request")
        if isinstance(answer, AcmeError):
            raise answer
        if self.lost_after:
            self.lost_after = False
            raise AcmeNoAnswer("timed out")
        return copy.deepcopy(answer)

    async def machines(self, owner: str) -> Sequence[Mapping[str, Any]]:
        """The owner's machines."""
        self._fail()
        rows = self.rows.values()
        return [copy.deepcopy(row) for row in rows if row["tags"]["owner"] == owner]

    async def delete(self, machine_ids: Sequence[str]) -> None:
        """End machines."""
        self._fail()
        for machine_id in machine_ids:
            self.end(machine_id, by="user")

    async def messages(self) -> Sequence[Mapping[str, Any]]:
        """All that happened."""
        self._fail()
        return list(self.told)

    def end(self, machine_id: str, *, by: str) -> None:
        """A machine ends, once."""
        row = self.rows[machine_id]
        if row["state"] != "gone":
            row["state"] = "gone"
            self.tell(row, "state", by=by)

    def reclaim(self, left: int) -> None:
        """Take back all but `left`, with notice."""
        taken = [row for row in self.rows.values() if row["state"] == "up"][left:]
        for row in taken:
            self.tell(row, "notice", by="acme", lead_s=self.lead_s)
        self.now_s += self.lead_s
        for row in taken:
            self.end(row["id"], by="acme")

    def tell(self, row: Mapping[str, Any], kind: str, **more: Any) -> None:
        """Tell of a machine."""
        self.told.append(
            {
                "id": f"{kind}-{row['id']}",
                "kind": kind,
                "machine": copy.deepcopy(row),
                "at_ns": self.now_s * NS_PER_S,
                **more,
            }
        )

    def _made(self, body: Mapping[str, Any]) -> Any:
        alive = [
            row
            for row in self.rows.values()
            if row["state"] == "up" and row["tags"]["bought"] == body["tags"]["bought"]
        ]
        free = max(0, self.stock[body["tags"]["bought"]] - len(alive))
        made = []
        for _ in range(min(free, body["count"])):
            number = len(self.rows)
            up_ns = self.now_s * NS_PER_S
            row = {"id": f"m-{number}", "number": number, "state": "up", "up_ns": up_ns}
            self.rows[f"m-{number}"] = {**row, "tags": dict(body["tags"])}
            made.append(self.rows[f"m-{number}"])
        short = {"code": "sold_out", "message": f"{free} left"} if free < body["count"] else None
        return copy.deepcopy({"machines": made, "refused": short})

    def _fail(self) -> None:
        error, self.next_error = self.next_error, None
        if error is not None:
            raise error


class AcmeRig(CloudRig):
    """How the contract suite handles Acme."""

    cloud = "acme"
    cannot: ClassVar[Mapping[str, str]] = {
        "fence": "it knows no epochs; they are in the tags, and the ledger's is read before each call",
        "lag": "this one is in memory; write the lag of the real one, if it has any",
        "double": "its messages are rows of a table, each there once",
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._settings = AcmeSettings(notice_lead_s=30, look_s=0.01)
        self.server = AcmeServer(self._settings.notice_lead_s)

    def another(self) -> CloudProvider:
        """Open it on the folder, as another process would."""
        cloud = AcmeCloud(self.folder / "acme.sqlite", self._settings, self.server)
        self._opened.append(cloud.close)
        return cloud

    @property
    def at(self) -> Moment:
        """Now."""
        return moment(0, self.server.now_s)

    def stock(self, spot: int, on_demand: int | None = None) -> None:
        """So many are there."""
        self.server.stock = {"spot": spot, "on_demand": 8 if on_demand is None else on_demand}

    def pass_time(self, seconds: int) -> None:
        """Time passes."""
        self.server.now_s += seconds

    def reclaim(self, left: int) -> None:
        """Acme wants machines back."""
        self.server.reclaim(left)

    def take_away(self, instance: Instance) -> None:
        """Acme takes one without notice."""
        self.server.end(instance.instance_id, by="acme")

    def protect(self, instance: Instance) -> None:
        """Somebody sets the tag by hand."""
        self.server.rows[instance.instance_id]["tags"]["hold"] = ""

    def push_notice(self, instance: Instance, lead_s: int) -> None:
        """Acme tells of its own accord."""
        row = self.server.rows[instance.instance_id]
        self.server.tell(row, "notice", by="acme", lead_s=lead_s)

    def lose_answer(self, *, launched: bool) -> None:
        """The next launch is not answered."""
        if launched:
            self.server.lost_after = True
        else:
            self.server.next_error = AcmeNoAnswer("no route")

    def throttle(self) -> None:
        """The next call is too many."""
        self.server.next_error = AcmeError("slow_down", "too many calls", 3)

    def refuse(self, refusal_class: RefusalClass, retry_after_s: int) -> None:
        """Refuse the next launch; what was worked on is refused again."""
        (code,) = (code for code, known in _CLASSES.items() if known is refusal_class)
        error = AcmeError(code, "as the test says", retry_after_s)
        if refusal_class in (RefusalClass.THROTTLED, RefusalClass.SERVER):
            self.server.next_error = error
        else:
            self.server._made = lambda _: error
