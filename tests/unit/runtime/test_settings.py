"""Every option of a service is a variable, with the name, the default and the checks it has."""

from dataclasses import fields

import pytest
from pydantic import ValidationError

from services.allocator.settings import AllocatorSettings
from services.analytics.settings import AnalyticsSettings
from services.cloud_actuator.settings import CloudActuatorSettings
from services.configurator.settings import ConfiguratorSettings
from services.forecaster.settings import ForecasterSettings
from services.market_ingest.settings import MarketIngestSettings
from services.notifier.settings import NotifierSettings
from services.placer.settings import PlacerSettings
from services.selector.settings import SelectorSettings
from spotline.application.analytics.options import StatisticsOptions
from spotline.application.health.conditions import HealthLimits
from spotline.application.placer.options import PlacerOptions
from spotline.application.selector.options import MOST_BIDDERS, SelectorOptions
from spotline.bootstrap import process
from spotline.domain.beliefs.stock_laws import shipped_stock
from spotline.domain.limits.spending import DEFAULT_SPENDING
from spotline.domain.market.prior_laws import shipped_priors
from spotline.domain.selection.prior import shipped_weights
from spotline.domain.statistics.windows import WindowSpec
from spotline.runtime.settings import ServiceSettings, problems_of, stated_by_file

# What each service read before its options became its settings: these names are a promise.
SHARED = {
    *(
        "NATS_URL",
        "NATS_SEED",
        "NATS_CA",
        "PARTITION",
        "HEALTH_HOST",
        "HEALTH_PORT",
        "METRICS",
        "OTLP_ENDPOINT",
    ),
    *("LOG_LEVEL", "IDENTITY_STORE", "IDENTITY_HOSTS", "IDENTITY_ISSUERS", "IDENTITY_MTLS"),
    *("IDENTITY_KEYS", "AUDIT_STORE"),
}
AGENTS = {"AGENTS_ADDRESS", "AGENTS_ADVERTISE", "AGENTS_FOLDER", "MARKET_S_PER_S"}
# Decided with, and explained with.
SELECTION = {
    *("FORECAST_TIMEOUT_S", "RULE", "REHEARSALS", "SPOT_FIRM", "DECAY", "HORIZON_JOBS"),
    *("UTILITY_FLOOR_USD", "UTILITY_CEILING_USD", "WARM_START", "MOVES", "EGRESS_USD_PER_GB"),
    *("ZONE_EGRESS_USD_PER_GB", "LIMITS", "LIMIT_GRACE_S", "SPENDING", "CLOUD", "CLEARING"),
    *(
        "BELIEFS",
        "SCORE_BELIEFS",
        "STOCK_BELIEFS",
        "BELIEF_PATHS",
        "SHARED_TABLES",
        "SHADOW_PRICES",
    ),
    *(
        "COUPLES_LIMITS",
        "RESCUE_ROOM",
        "STRICT_RECLAIMS",
        "NETS_SOFT_DEADLINES",
        "BRIEF_SEARCH",
        "EVEN_CELLS",
        "SPREADS_HOMES",
        "RESCUES_SOFT_DEADLINES",
        "HOMES_BY_LAW",
        "TABLES_ON_THE_WAY",
        "STAYS_ELSEWHERE",
        "KEEPS_SPOT",
        "LATE_ON_SPOT",
        "PRICES_AHEAD",
        "PRICES_BY_COUNT",
        "MOST_BIDDERS",
        "PROBES",
        "PROBE_REST_SLOTS",
        "PROBE_USD_PER_HOUR",
        "FAIRNESS",
        "TENANT_SHARES",
    ),
}
VARIABLES = {
    AllocatorSettings: {
        *("ALLOCATOR_ADDRESS", "AWAIT_ADMISSION", "CONFIGURATOR_ADDRESS", "QUOTE_MARGIN"),
        "OUTLOOKS",
        *("AGENTS_AWS_ACCOUNTS", "AGENTS_AWS_REGIONS", "AGENTS_AWS_CERTIFICATES"),
        *("MOST_CALLS", "MOST_CALLS_A_TENANT", "MOST_STREAMS", "MOST_STREAMS_A_TENANT"),
        *("MOST_ALLOCATIONS", "MOST_OPEN_JOBS_A_TENANT"),
        *AGENTS,
        *("AGENTS_AWS_CERTIFICATES", "AGENTS_AWS_ACCOUNTS", "AGENTS_AWS_REGIONS"),
        *SELECTION,
    },
    AnalyticsSettings: {
        *("ANALYTICS_ADDRESS", "STATISTICS_WINDOWS", "STATISTICS_GRACE_S"),
        *("STATISTICS_DELAY_SLOTS", "STATISTICS_HISTORY_S", "WORKER", "LEASE_S"),
    },
    CloudActuatorSettings: {
        *("REAP", "REAP_ACCOUNTS", "REAP_GRACE_S", "REAP_AT_MOST", "COMPARE_EVERY_SLOTS"),
        "CLOUD_SIMULATED_LEASE_S",
        *("CLOUD_AWS_ENDPOINT_URL", "CLOUD_AWS_CONNECT_TIMEOUT_S", "CLOUD_AWS_READ_TIMEOUT_S"),
        *("CLOUD_AWS_QUEUE_WAIT_S", "CLOUD_AWS_IDENTITY_CERTIFICATES"),
        "CLOUD_AWS_PLACEMENT_SCORES_FOR",
        *("CLOUD", "MODE", "STORE", "LEDGER_URL", "OWNER", "CAP_USD_PER_JOB"),
        *("CAP_USD_PER_HOUR", "CAP_LAUNCHES_PER_MINUTE", "SPENDING", "CLOUD_SIMULATED_SEED"),
        *("CLOUD_SIMULATED_LAUNCH_DELAY_S", "CLOUD_SIMULATED_NOTICE_LEAD_S"),
        *("CLOUD_SIMULATED_REFUSAL_PROBABILITY", "CLOUD_SIMULATED_INTERRUPTION_PER_INSTANCE_HOUR"),
        *AGENTS,
        *("CLOUD_LOCAL_COMMAND", "CLOUD_LOCAL_RUN_AS", "CLOUD_LOCAL_MOST_INSTANCES"),
        *("CLOUD_LOCAL_CPU_SHARE", "CLOUD_LOCAL_CPU_SHARE_BY", "CLOUD_LOCAL_GPUS_PER_INSTANCE"),
        *("CLOUD_LOCAL_GPU_DEVICES", "CLOUD_LOCAL_NOTICE_LEAD_S", "CLOUD_LOCAL_SUDDEN_SHARE"),
        *("CLOUD_LOCAL_INTERRUPTION_PER_INSTANCE_HOUR", "CLOUD_LOCAL_RECLAIM_SPREAD"),
        *("CLOUD_LOCAL_STOP_GRACE_S", "CLOUD_LOCAL_SEED", "CLOUD_LOCAL_SLOT_S"),
        *("CLOUD_LOCAL_PRICE_USD_PER_INSTANCE_HOUR", "CLOUD_LOCAL_SOLD_OUT_S"),
        *("CLOUD_PAPER_SEED", "CLOUD_PAPER_LAUNCH_DELAY_S", "CLOUD_PAPER_MOST_INSTANCES"),
        *("CLOUD_PAPER_UP_SHARE", "CLOUD_PAPER_STAYS_UP"),
    },
    ConfiguratorSettings: {"CONFIGURATOR_ADDRESS", "KNOWLEDGE", "KNOWLEDGE_STACK"},
    ForecasterSettings: {
        *("FORECASTER", "HORIZON_SLOTS", "PRIORS"),
        *("WATCH_LAWS", "WHOLE_GANGS", "FALLING_ENDS", "PRESENT_PRICES"),
    },
    MarketIngestSettings: {
        *("MARKET", "SLOTS_PER_S", "WALL_CLOCK", "WAIT_FOR_WORK", "GEOGRAPHY", "NOTICE_LEAD_S"),
        *("RESERVATIONS", "PRICE_SANITY", "LIST_PRICES", "STALE_AFTER_S", "CLOUD", "MODE"),
        *("SLOT_S", "STORE"),
    },
    NotifierSettings: {"STORE", *SELECTION},
    PlacerSettings: {*("PLACER_ADDRESS", "PLACEMENT_METHOD", "PLACEMENT_COST", "PLACEMENT_MOVES")},
    SelectorSettings: {
        *("ALLOCATOR_ADDRESS", "ALLOCATE_TIMEOUT_S", "DECISIONS_MAX_AGE_S", "DECISIONS_MAX_BYTES"),
        *SELECTION,
    },
}
HEALTH = {
    *("HEALTH_STALL_S", "HEALTH_BACKLOG", "HEALTH_BUS_SILENT_S", "HEALTH_SLOT_LENGTHS"),
    "HEALTH_SLOT_LEAST_S",
    *("HEALTH_DISK_FREE_BYTES", "HEALTH_STORAGE_FREE_PPM", "HEALTH_LOOP_BLOCKED_S"),
    *("HEALTH_HEARD_S", "HEALTH_AGREEMENT_SLOTS", "HEALTH_FREEZE_SLOTS"),
}
HELD = {
    (ForecasterSettings, "health"): HealthLimits(
        stall_s=61.0,
        backlog=1001,
        bus_silent_s=11.0,
        slot_lengths=4,
        slot_least_s=62.0,
        disk_free_bytes=1,
        storage_free_ppm=2,
        loop_blocked_s=12.0,
        heard_s=16.0,
        agreement_slots=25,
        freeze_slots=8,
    ),
    (SelectorSettings, "selector"): SelectorOptions(
        rule="exponentiated_gradient",
        decay=0.5,
        horizon_jobs=3,
        utility_floor_usd=-1.5,
        utility_ceiling_usd=9.0,
        warm_start="{}",
        forecast_timeout_s=3.0,
        rehearsals=5,
        spot_firm=False,
        moves=False,
        egress_usd_per_gb=0.5,
        zone_egress_usd_per_gb=0.25,
        limits=True,
        limit_grace_s=30,
        spending='{"launches_per_minute": 5}',
        clearing=True,
        beliefs=shipped_priors().sha256,
        score_beliefs=True,
        stock_beliefs=shipped_stock().sha256,
        belief_paths=3,
        # Where it serves, jobs always share.
        shared_tables=True,
        fairness=2.5,
        tenant_shares="research=2",
        shadow_prices=True,
        couples_limits=True,
        rescue_room=True,
        strict_reclaims=True,
        nets_soft_deadlines=True,
        brief_search=True,
        even_cells=True,
        spreads_homes=True,
        rescues_soft_deadlines=True,
        homes_by_law=True,
        tables_on_the_way=True,
        stays_elsewhere=True,
        keeps_spot=True,
        late_on_spot=True,
        prices_by_count=True,
        prices_ahead=True,
        most_bidders=7,
        probes=3,
        probe_rest_slots=5,
        probe_usd_per_hour=0.5,
    ),
    (PlacerSettings, "placement"): PlacerOptions(method="bace_pipe", cost="rent", moves=False),
    (AnalyticsSettings, "statistics"): StatisticsOptions(
        windows=(WindowSpec(size_s=600, hop_s=300), WindowSpec(size_s=900, hop_s=900)),
        delay_slots=2,
        grace_s=7,
        history_s=86_400,
    ),
}
PREFIXES = {
    "health": "health_",
    "selector": "",
    "placement": "placement_",
    "statistics": "statistics_",
}

# What money has by default.
SERVED = {
    "limits": True,
    "spending": DEFAULT_SPENDING.to_json(),
    "warm_start": shipped_weights(),
    "clearing": True,
    "shadow_prices": True,
    "couples_limits": True,
    "rescue_room": True,
    "strict_reclaims": True,
    "nets_soft_deadlines": True,
    "brief_search": True,
    "even_cells": True,
    "spreads_homes": True,
    "rescues_soft_deadlines": True,
    "homes_by_law": True,
    "tables_on_the_way": True,
    "stays_elsewhere": True,
    "keeps_spot": True,
    "late_on_spot": True,
    "prices_by_count": True,
    "prices_ahead": True,
    "most_bidders": MOST_BIDDERS,
}


def as_text(value):
    if isinstance(value, tuple):
        return ",".join(f"{spec.size_s}/{spec.hop_s}" for spec in value)
    return str(value)


def said(monkeypatch, capsys, settings, **variables):
    """What a service says when it is started with these variables."""
    for name, text in variables.items():
        monkeypatch.setenv(f"SPOTLINE_{name}", text)
    code = process.main(settings, lambda settings, bus, hooks: pytest.fail("it was served"))
    assert code == process.EXIT_CONFIG
    return capsys.readouterr().err


@pytest.mark.parametrize("settings", VARIABLES)
def test_the_names_of_the_variables_stay(settings):
    expected = {f"SPOTLINE_{name}" for name in VARIABLES[settings] | SHARED | HEALTH}

    assert settings.variables() == expected


@pytest.mark.parametrize(("settings", "field"), HELD)
def test_every_option_is_set_by_its_variable(settings, field, monkeypatch):
    wanted = HELD[settings, field]
    default = type(wanted)()
    stated = settings.model_fields[field].metadata[0].variables(type(wanted))
    for option, variable in stated.items():
        assert variable == f"{PREFIXES[field]}{option}"
        assert getattr(wanted, option) != getattr(default, option), f"{option} is not tested"
        monkeypatch.setenv(f"SPOTLINE_{variable}".upper(), as_text(getattr(wanted, option)))

    held = getattr(settings(), field)

    assert held == wanted
    assert {option.name for option in fields(wanted)} - stated.keys() == (
        {"rehearsals_per_job", "history_slots", "most_revisions", "competing"}
        if settings is SelectorSettings
        else set()
    )


@pytest.mark.parametrize(("settings", "field"), HELD)
def test_without_variables_the_options_have_their_own_defaults(settings, field):
    served = SERVED if settings is SelectorSettings else {}

    assert getattr(settings(), field) == type(HELD[settings, field])(**served)


@pytest.mark.parametrize("settings", [SelectorSettings, AllocatorSettings, NotifierSettings])
@pytest.mark.parametrize(
    ("stated", "firm"),
    [
        ({}, True),
        ({"CLOUD": "simulated"}, True),
        ({"CLOUD": "aws"}, False),
        ({"CLOUD": "aws", "DECAY": "0.5"}, False),
        ({"CLOUD": "aws", "SPOT_FIRM": "true"}, True),
        ({"SPOT_FIRM": "false"}, False),
    ],
)
def test_deadlines_count_on_spot_only_where_counts_are_known(monkeypatch, settings, stated, firm):
    for name, text in stated.items():
        monkeypatch.setenv(f"SPOTLINE_{name}", text)

    assert settings().selector.spot_firm is firm


@pytest.mark.parametrize("settings", [AllocatorSettings, NotifierSettings])
def test_the_limits_are_the_selectors_where_both_are_told_the_same(settings, monkeypatch, tmp_path):
    spending = '{"total": {"micro_usd_per_day": 5000000}}'
    for name, text in {"CLOUD": "aws", "SPENDING": spending, "LIMIT_GRACE_S": "30"}.items():
        monkeypatch.setenv(f"SPOTLINE_{name}", text)

    assert settings().selector == SelectorSettings().selector
    assert settings().selector.spending == spending


def test_one_variable_leaves_the_other_options_alone(monkeypatch):
    monkeypatch.setenv("SPOTLINE_DECAY", "0.5")

    assert SelectorSettings().selector == SelectorOptions(decay=0.5, **SERVED)


def test_no_variable_sets_the_options_as_a_whole_or_one_that_is_left_out(monkeypatch):
    monkeypatch.setenv("SPOTLINE_SELECTOR", '{"decay": 0.5}')
    monkeypatch.setenv("SPOTLINE_COMPETING", "false")

    assert SelectorSettings().selector == SelectorOptions(**SERVED)


@pytest.mark.parametrize(
    "unknown", [{"rulee": "adahedge"}, {"selector": {"rulee": "adahedge"}}], ids=["top", "nested"]
)
def test_an_unknown_key_is_refused(unknown):
    with pytest.raises(ValidationError, match="rulee"):
        SelectorSettings(**unknown)


@pytest.mark.parametrize(
    ("settings", "variable", "text", "problem"),
    [
        (SelectorSettings, "DECAY", "2", "decay must lie in (0, 1], was 2"),
        (SelectorSettings, "DECAY", "nan", "decay must lie in (0, 1], was nan"),
        (SelectorSettings, "DECAY", "much", "valid number"),
        (SelectorSettings, "RULE", "best", "one of adahedge, exponentiated_gradient, was 'best'"),
        (SelectorSettings, "REHEARSALS", "-1", "must be finite and >= 0, was -1"),
        (SelectorSettings, "REHEARSALS", "1.5", "valid integer"),
        (SelectorSettings, "FORECAST_TIMEOUT_S", "inf", "must be finite and > 0, was inf"),
        (SelectorSettings, "UTILITY_FLOOR_USD", "nan", "must be finite, was nan"),
        (SelectorSettings, "EGRESS_USD_PER_GB", "inf", "must be finite and >= 0, was inf"),
        (SelectorSettings, "ALLOCATE_TIMEOUT_S", "0", "greater than 0"),
        (SelectorSettings, "MOVES", "perhaps", "valid boolean"),
        (SelectorSettings, "CLOUD", "moon", "cloud must be one of aws, local, simulated"),
        (PlacerSettings, "PLACEMENT_METHOD", "best", "method: "),
        (PlacerSettings, "PLACEMENT_COST", "time", "cost must be one of energy, rent, was 'time'"),
        (AnalyticsSettings, "STATISTICS_WINDOWS", "5", "size/hop in seconds"),
        (AnalyticsSettings, "STATISTICS_GRACE_S", "-1", "grace_s must be >= 0, was -1"),
        (AnalyticsSettings, "STATISTICS_HISTORY_S", "1", "history_s must be >= "),
        (
            CloudActuatorSettings,
            "CLOUD_SIMULATED_REFUSAL_PROBABILITY",
            "2",
            "must lie in 0..1, was 2",
        ),
        (CloudActuatorSettings, "CLOUD_SIMULATED_LAUNCH_DELAY_S", "soon", "valid integer"),
        (
            CloudActuatorSettings,
            "CLOUD",
            "moon",
            "cloud must be one of aws, local, simulated, was 'moon'",
        ),
        (CloudActuatorSettings, "CAP_USD_PER_JOB", "-1", "greater than or equal to 0"),
        (ServiceSettings, "HEALTH_PORT", "70000", "less than or equal to 65535"),
    ],
)
def test_a_wrong_value_is_refused_by_the_name_of_its_variable(
    monkeypatch, capsys, settings, variable, text, problem
):
    (line,) = said(monkeypatch, capsys, settings, **{variable: text}).splitlines()

    assert line.startswith(f"spotline: SPOTLINE_{variable}: ")
    assert problem in line


def test_every_wrong_variable_is_named(monkeypatch, capsys):
    told = said(monkeypatch, capsys, SelectorSettings, DECAY="x", REHEARSALS="y", LOG_LEVEL="z")

    assert sorted(line.split(": ")[1] for line in told.splitlines()) == [
        "SPOTLINE_DECAY",
        "SPOTLINE_LOG_LEVEL",
        "SPOTLINE_REHEARSALS",
    ]


def test_a_key_that_is_no_variable_is_named_as_it_is():
    with pytest.raises(ValidationError) as caught:
        SelectorSettings(rulee="adahedge")

    assert problems_of(SelectorSettings, caught.value) == [
        "SPOTLINE_RULEE: Extra inputs are not permitted"
    ]


def test_what_a_file_states_holds_where_the_environment_says_nothing(monkeypatch) -> None:
    monkeypatch.setenv("SPOTLINE_RULE", "exponentiated_gradient")
    file = {"RULE": "adahedge", "HORIZON_JOBS": "3", "NATS_URL": "nats://h:1", "MARKET": "none's"}

    with stated_by_file(file):
        settings = SelectorSettings()

    assert (settings.selector.rule, settings.selector.horizon_jobs) == ("exponentiated_gradient", 3)
    assert settings.nats_url == "nats://h:1"
    assert SelectorSettings().nats_url == "nats://127.0.0.1:4222"
