"""The tenants that requests name, whatever the message."""

from __future__ import annotations

import pytest
from google.protobuf import descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from spotline.adapters.grpc.analytics.servicer import AnalyticsServer
from spotline.adapters.grpc.kit.tenants import bind_tenant
from spotline.api.v1 import allocator_service_pb2 as pb
from spotline.api.v1 import analytics_service_pb2, job_pb2, job_service_pb2
from spotline.contracts.access import GRPC_ACTIONS, Reach

OWN = "research"
TENANTS = st.sampled_from(("", OWN, "rival", "another"))


@given(jobs=st.lists(TENANTS, max_size=6), job=st.none() | TENANTS, draft=st.none() | TENANTS)
def test_what_is_left_out_is_filled_in_and_what_is_anothers_is_told(jobs, job, draft):
    request = pb.PlanRequest(jobs=[job_pb2.Job(tenant=tenant) for tenant in jobs])
    if job is not None:
        request.job.tenant = job
        request.job.SetInParent()
    if draft is not None:
        request.draft.tenant = draft
        request.draft.SetInParent()
    stated = {*jobs, *({job, draft} - {None})} - {"", OWN}

    other = bind_tenant(request, OWN)

    bound = {each.tenant for each in request.jobs}
    bound |= {request.job.tenant} if job is not None else set()
    bound |= {request.draft.tenant} if draft is not None else set()
    assert "" not in bound
    assert bound <= stated | {OWN}
    assert bool(other) == bool(stated)
    assert other in {"", *stated}
    assert request.HasField("job") == (job is not None)
    assert request.HasField("draft") == (draft is not None)


@pytest.mark.parametrize(
    "name", [name for name, row in GRPC_ACTIONS.items() if row.reach is Reach.TENANT]
)
def test_every_request_of_a_tenants_things_names_a_tenant_or_a_job(name):
    service, _, method = name.strip("/").rpartition("/")
    found = descriptor_pool.Default().FindServiceByName(service).methods_by_name[method]
    request = message_factory.GetMessageClass(found.input_type)()
    for field in found.input_type.fields:
        if field.message_type is not None and not field.is_repeated:
            getattr(request, field.name).SetInParent()
        elif field.name == "jobs":
            request.jobs.add()

    bind_tenant(request, OWN)

    assert OWN in str(request) or "job_id" in found.input_type.fields_by_name


def test_a_request_about_no_tenants_things_is_left_as_it_is():
    request = job_service_pb2.GetRequest(job_id="x")

    assert bind_tenant(request, OWN) == ""
    assert request == job_service_pb2.GetRequest(job_id="x")


@pytest.mark.parametrize(
    ("scope", "key", "tenant", "other", "bound"),
    [
        (2, "", "", "", (OWN, "")),
        (2, OWN, "", "", (OWN, "")),
        (2, "rival", "", "rival", ("rival", "")),
        (2, "*", "", "*", ("*", "")),
        (2, OWN, "rival", "rival", (OWN, "rival")),
        (3, "sdp", "", "", ("sdp", OWN)),
        (3, "sdp", "rival", "rival", ("sdp", "rival")),
        (1, "zone-a", "", "", ("zone-a", "")),
    ],
)
def test_statistics_are_asked_for_by_scope(scope, key, tenant, other, bound):
    request = analytics_service_pb2.QueryRequest(scope=scope, key=key, tenant=tenant)

    assert AnalyticsServer(None, address="").bind(request, OWN) == other
    assert (request.key, request.tenant) == bound
