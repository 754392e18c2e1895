"""The columns of FOCUS 1.2, and those of our own beside them.

Names, order and allowed values: the FinOps Open Cost and Usage Specification, version 1.2
(https://focus.finops.org/focus-specification/v1-2/). Columns that no charge of ours could fill (SKUs,
another pricing currency, invoices) are left out where the specification makes them conditional.
"""

from __future__ import annotations

from types import MappingProxyType

VERSION = "1.2"

MONEY = (
    "BilledCost",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "ListCost",
    "ListUnitPrice",
)
"""In the billing currency, as exact decimals."""

QUANTITIES = ("CommitmentDiscountQuantity", "ConsumedQuantity", "PricingQuantity", "x_Instances")
"""Decimals and whole numbers that are no money."""

OWN = MappingProxyType(
    {
        "x_JobId": "Job that was charged.",
        "x_Tenant": "Tenant that it belongs to.",
        "x_OfferingId": "Offering that was held, as the market names it.",
        "x_Slot": "Slot of the market that the charge is of.",
        "x_Instances": "Instances that were held together; 0 of a copy of a checkpoint.",
        "x_HeldSeconds": "Seconds of the slot for which they were held.",
        "x_DecisionId": "Event of the decision behind the charge; empty: no decision explains it.",
        "x_DecisionSlot": "Slot of that decision, for spotline explain.",
        "x_DecisionRevision": "Which decision of that slot it was.",
        "x_CommandId": "Command by which the instances were asked for.",
        "x_Estimated": "true: nobody saw until when they were held.",
        "x_LogEntry": "Entry of the event log that holds the charge.",
    }
)
"""What each of our own columns says."""

STANDARD = (
    "AvailabilityZone",
    "BilledCost",
    "BillingAccountId",
    "BillingAccountName",
    "BillingCurrency",
    "BillingPeriodEnd",
    "BillingPeriodStart",
    "CapacityReservationId",
    "CapacityReservationStatus",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ChargePeriodEnd",
    "ChargePeriodStart",
    "CommitmentDiscountCategory",
    "CommitmentDiscountId",
    "CommitmentDiscountName",
    "CommitmentDiscountQuantity",
    "CommitmentDiscountStatus",
    "CommitmentDiscountType",
    "CommitmentDiscountUnit",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ContractedCost",
    "ContractedUnitPrice",
    "EffectiveCost",
    "InvoiceIssuerName",
    "ListCost",
    "ListUnitPrice",
    "PricingCategory",
    "PricingQuantity",
    "PricingUnit",
    "ProviderName",
    "PublisherName",
    "RegionId",
    "RegionName",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceCategory",
    "ServiceName",
    "ServiceSubcategory",
    "SubAccountId",
    "SubAccountName",
    "Tags",
)

COLUMNS = (*STANDARD, *OWN)
"""All, in the order in which an export has them."""
