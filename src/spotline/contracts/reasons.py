"""Why a service refuses a request: the one list of reasons, for programs that read errors."""

from __future__ import annotations

from enum import Enum

ERROR_DOMAIN = "spotline"
"""Whose reasons these are, as `google.rpc.ErrorInfo` asks."""


class Reason(Enum):
    """A reason of `google.rpc.ErrorInfo`; its value says what it means and what to do."""

    FIELD_INVALID = "fields of the request are wrong; BadRequest names each"
    TOO_MANY_ITEMS = "a list of the request is too long; send it in parts"
    REQUEST_ID_REUSED = "the request id was used for another request; take a new one"
    DEADLINE_INFEASIBLE = "the deadline cannot be met; metadata has earliestFeasibleDeadline"
    DEADLINE_UNLIKELY = "less likely to be on time than the request asks for; nothing was recorded"
    ETAG_MISMATCH = "the job has changed since its status was read; read it again"
    UNKNOWN_JOB = "there is no such job"
    UNKNOWN_PIPELINE = "there is no such pipeline"
    UNKNOWN_FREEZE = "no such stop of buying is in force; the message names those that are"
    JOB_OVER = "the job is over: nothing changes it any more"
    MARKET_NOT_OPEN = "no market or no slot of it is open yet; try again"
    MARKET_ENDED = "the replayed market has ended: no slot opens any more"
    NO_REGION_KNOWN = "no region has been observed yet; try again"
    NOT_APPLIED_YET = "recorded, but not applied in time; the same request again says more"
    NOT_ADMITTED_YET = "recorded, but the ledger does not hold it yet; the same request again"
    BUS_UNAVAILABLE = "the event bus did not take it: nothing was recorded; try again"
    SERVER_STOPPING = "the server is stopping; try again"
    VIEWS_UNAVAILABLE = "what is shown cannot be kept now; try again later"
    STATISTICS_UNAVAILABLE = "this worker cannot say now; ask again, or another worker"
    TOO_MANY_REQUESTS = "too many requests wait for an answer; try again later"
    TOO_MANY_JOBS = "the tenant has as many jobs that are not over as it may have; try again later"
    WATCH_TOO_SLOW = "the watcher fell behind; watch again"
    NO_CONFIGURATOR = "drafts cannot be completed here: no configurator is configured"
    CONFIGURATOR_UNAVAILABLE = "the configurator does not answer; try again"
    CONFIGURATOR_UNREADABLE = "the configurator's answer cannot be read: versions differ"
    DRAFT_UNFIT = "nothing that is known fits the draft"
    TOKEN_REFUSED = "the join token is not one of ours, or expired, or is another instance's"  # noqa: S105 - why
    TOKEN_USED = "an agent has joined with this token before: it can be used once"  # noqa: S105 - why
    DOCUMENT_REFUSED = "the identity document is not signed by AWS, or of none of our instances"
    NOT_HELD_YET = "no job is known to hold the instance so far; try again"
    SESSION_REFUSED = "no session, or none of ours: join with the instance's token"
    NOT_RUN_HERE = "Spotline does not run this job's program: it has no `run`"
    NO_OUTPUT = "this server keeps no output of programs"
    RUN_ON_PAPER = "the run is on paper, so that cannot be; the message says where it can"
    UNKNOWN_ORPHAN = "no such instance is an orphan; list those that are"
    UNKNOWN_PARKED_ENTRY = "no such entry is parked; list those that are"
    ENTRY_GONE = "the log no longer keeps the entry: it can only be dropped"
    UNKNOWN_DECISION = "there is no such decision; the message names the nearest"
    LOG_BEGINS_LATE = "the log's beginning is no longer kept: decisions cannot be worked out again"
    EXPLAINER_BUSY = "another decision is being explained; try again"
    NO_EXPLAINER = "this server explains no decisions"
    UNAUTHENTICATED = "no token, or none that is good here; the message says what is wrong with it"
    ROLE_DENIED = "the token's role may not do this; the message names the roles that may"
    TENANT_DENIED = "the token is another tenant's"
    AUDIT_UNAVAILABLE = "the audit cannot be written, so nothing was done; try again later"
