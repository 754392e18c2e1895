"""Submit, change, follow and withdraw a job: `python client.py HOST:PORT [CA_FILE TOKEN_FILE]`."""

import sys
from pathlib import Path

import grpc
from google.protobuf.field_mask_pb2 import FieldMask
from google.rpc import error_details_pb2, status_pb2

from spotline.api.v1 import job_pb2
from spotline.api.v1 import job_service_pb2 as pb
from spotline.api.v1.job_service_pb2_grpc import JobServiceStub

HOUR_NS = 3600 * 10**9


def run(jobs):
    now_ns = jobs.GetMarket(pb.GetMarketRequest()).clock.market_ns
    job = job_pb2.Job(tenant="research", value_micro_usd=400_000_000, allowed_counts=[1, 2, 4])
    job.work.amount, job.work.unit = 8, "instance_hours"
    job.deadline.at_ns = now_ns + 24 * HOUR_NS
    job.throughputs.add(offering="*", alpha=1)
    job_id = jobs.Submit(pb.SubmitRequest(job=job, request_id="example-1")).job_id
    change = pb.UpdateJobRequest(job_id=job_id, budget_micro_usd=300_000_000)
    change.etag = jobs.Get(pb.GetRequest(job_id=job_id)).status.etag
    change.update_mask.CopyFrom(FieldMask(paths=["budget_micro_usd"]))
    seen = jobs.UpdateJob(change).plan.outlook
    print("plan:", seen.cost_p50_micro_usd / 1e6, "USD", seen.on_time_probability_ppm / 1e4, "%")
    for seen in jobs.Watch(pb.WatchRequest(job_id=job_id)):
        print("slot", seen.clock.slot, seen.change, pb.JobState.Name(seen.status.state))
        if seen.change == "decision":
            jobs.Cancel(pb.CancelRequest(job_id=job_id, request_id="example-2"))


def explain(error):
    said = dict(error.trailing_metadata()).get("grpc-status-details-bin", b"")
    print(error.code().name, error.details())
    for detail in status_pb2.Status.FromString(said).details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            for field in bad.field_violations:
                print("field:", field.field, field.description)


def connected(address, ca_file="", token_file=""):
    if not ca_file:  # of a server that asks nobody who he is
        return grpc.insecure_channel(address)
    trusted = grpc.ssl_channel_credentials(Path(ca_file).read_bytes())
    token = grpc.access_token_call_credentials(Path(token_file).read_text().strip())
    return grpc.secure_channel(address, grpc.composite_channel_credentials(trusted, token))


with connected(*sys.argv[1:]) as channel:
    try:
        run(JobServiceStub(channel))
    except grpc.RpcError as error:
        sys.exit(explain(error) or 1)
