"""Workloads of Kueue: `kubectl get workloads -A -o json`.

Fields: https://kueue.sigs.k8s.io/docs/reference/kueue.v1beta1/#kueue-x-k8s-io-v1beta1-Workload. A
workload ran from its admission to its end; one that was evicted and admitted again is counted from
its creation, since only the last admission is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from spotline.adapters.table_cells import Wrong, amount, time_s
from spotline.domain.assessment.lines import HistoryJob

_GPU_NAMES = ("nvidia.com/gpu", "amd.com/gpu")


def jobs_of_kueue(items: Sequence[Any]) -> list[HistoryJob]:
    """The workloads that were admitted; raises `Wrong`."""
    jobs: list[HistoryJob] = []
    for number, item in enumerate(items, start=1):
        where = f"item {number}"
        if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
            raise Wrong(f"{where}, field metadata", "an object", item)
        if item.get("kind") not in ("Workload", None):
            raise Wrong(f"{where}, field kind", "Workload", item["kind"])
        job = _job(item, where)
        if job is not None:
            jobs.append(job)
    return jobs


def _job(item: dict[str, Any], where: str) -> HistoryJob | None:
    metadata, status = item["metadata"], _object(item, "status")
    listed = status.get("conditions") or []
    conditions = {each.get("type"): each for each in listed if isinstance(each, dict)}
    admitted = _when(conditions, "Admitted", where)
    finished = _when(conditions, "Finished", where)
    evictions = _evictions(status, conditions, where)
    if admitted is None and not evictions:
        return None
    begin_s = admitted
    if evictions or begin_s is None:
        column = f"{where}, field metadata.creationTimestamp"
        begin_s, _ = time_s(metadata.get("creationTimestamp"), column)
    namespace, name = str(metadata.get("namespace") or ""), str(metadata.get("name") or "")
    owners = [
        str(each["name"])
        for each in metadata.get("ownerReferences") or []
        if isinstance(each, dict) and each.get("name")
    ]
    return HistoryJob(
        job_id=f"{namespace}/{owners[0] if owners else name}",
        begin_s=begin_s,
        end_s=finished,
        owner=namespace,
        names=tuple(dict.fromkeys((name, *owners, str(metadata.get("uid") or name)))),
        gpus=_gpus(item, where),
        restarts=evictions,
    )


def _object(item: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = item.get(field)
    return found if isinstance(found, dict) else {}


def _when(conditions: Mapping[Any, Any], name: str, where: str) -> int | None:
    """When a condition came true; None where it is not."""
    condition = conditions.get(name)
    if condition is None or condition.get("status") != "True":
        return None
    at, _ = time_s(condition.get("lastTransitionTime"), f"{where}, condition {name}")
    return at


def _evictions(status: Mapping[str, Any], conditions: Mapping[Any, Any], where: str) -> int:
    """How often it was evicted: by its statistics where they are kept."""
    kept = _object(status, "schedulingStats").get("evictions")
    if isinstance(kept, list):
        column = f"{where}, field status.schedulingStats.evictions"
        return sum(
            int(amount(each.get("count"), column)) for each in kept if isinstance(each, dict)
        )
    return 1 if "Evicted" in conditions else 0


def _gpus(item: Mapping[str, Any], where: str) -> int:
    """GPUs of the largest pod."""
    most = 0
    for pods in _object(item, "spec").get("podSets") or []:
        template = _object(_object(pods if isinstance(pods, dict) else {}, "template"), "spec")
        of_pod = 0
        for container in template.get("containers") or []:
            resources = _object(container if isinstance(container, dict) else {}, "resources")
            wanted = {**_object(resources, "limits"), **_object(resources, "requests")}
            column = f"{where}, field spec.podSets.resources"
            of_pod += sum(int(amount(wanted.get(name), column)) for name in _GPU_NAMES)
        most = max(most, of_pod)
    return most
