"""A `spotline.yaml` to begin with."""

from __future__ import annotations

from types import MappingProxyType

_HEAD = """\
# How this installation of Spotline runs: spotline up --config FILE; every key: docs/configuration.md.
# spotline config check FILE says what is wrong with it, spotline config show FILE what holds.
# A secret stands elsewhere: {{env: NAME}} or {{file: PATH}}.
cloud: {cloud}
# mode: observe          # observe | shadow | live; default: {mode}
# store: spotline-store  # folder of broker, ledger and log; paths begin at the folder of this file
# log_level: info

"""

_FILE_MARKET = """\
market:
  file: market.parquet   # spotline market generate --preset mixed -o market.parquet
  # slots_per_s: 1       # or speed: 60, or wall_clock: true
  # wait_for_work: true
"""

_OWN_MARKET = """\
# market:
  # slot: 5m             # of this machine's own market
"""

_LIMITS = """
limits:                  # the most that may be spent (docs/operating.md)
  total: {usd_per_day: 500}
  # tenants: {vision: {usd_per_month: 2000}}

# addresses:
  # allocator: 127.0.0.1:7070
  # http: 127.0.0.1:7080
# identity: {hosts: [spotline.example.com]}
"""

_SECTIONS = MappingProxyType(
    {
        "simulated": """
clouds:
  simulated:
    launch_delay_s: 120
    # interruption_per_instance_hour: 0.05
""",
        "local": """
clouds:
  local:
    most_instances: 4
    # price_usd_per_instance_hour: 1.0
""",
        "aws": """
clouds:
  aws:
    accounts:
      - name: main
        account_id: "123456789012"        # <- yours: aws sts get-caller-identity
        mode: observe                     # nothing is bought before: spotline promote aws/main --to live
        # role_arn: arn:aws:iam::123456789012:role/spotline
        # external_id: {env: SPOTLINE_EXTERNAL_ID}
        # queues: {us-east-1: https://sqs.us-east-1.amazonaws.com/123456789012/spotline}
    offerings:                            # every zone with every instance type
      - account: main
        region: us-east-1
        zones: [use1-az1, use1-az4]       # <- ids, not names: aws ec2 describe-availability-zones
        instance_types: [p4d.24xlarge]
        launch_template_id: lt-0123456789abcdef0  # <- yours: image, disks, roles, keys, subnets
        # disk_gb: 200                    # <- of one instance; with its price, in all prices and bills
        # disk_usd_per_gb_month: 0.08
        # subnets: {use1-az1: subnet-0123456789abcdef0}
        # placement_groups: {use1-az1: gangs-1}
""",
    }
)
CLOUDS = tuple(_SECTIONS)
"""Clouds that there is a starter for."""


def starter_text(cloud: str) -> str:
    """The text of a file for a cloud of `CLOUDS`; it is read as it stands."""
    mode = "observe, as it sends bills" if cloud == "aws" else "live"
    market = _OWN_MARKET if cloud == "local" else _FILE_MARKET
    return _HEAD.format(cloud=cloud, mode=mode) + market + _LIMITS + _SECTIONS[cloud]
