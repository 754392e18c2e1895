"""Hand a job over and wait for its end: `python submit.py [HOST:PORT]`."""

import sys

from spotline.client import Client, RpcFailed

JOB = {
    "name": "llama-8b-support-chat",
    "tenant": "research",
    "work": {"amount": 8, "unit": "instance_hours"},
    "deadline": {"hard": "20h"},  # after the submission, in market time
    "value_usd": 400,
    "instances": {"min": 1, "max": 4},
    "throughput": {"*": {"alpha_per_hour": 1}},
}

with Client(*sys.argv[1:]) as spotline:
    try:
        receipt = spotline.submit(JOB)
        print("job", receipt.job_id)
        ended = spotline.wait(receipt.job_id)
    except RpcFailed as refused:
        sys.exit(f"{refused.reason}: {refused}")
    print(ended.state.value, f"{ended.cost_micro_usd / 1e6:.2f} USD")
