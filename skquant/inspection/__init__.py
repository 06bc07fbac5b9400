"""How sure a retention is: certificates, bounds, intervals and optimism."""

from skquant.inspection._alignment import AlignmentReport, alignment_report
from skquant.inspection._bound import EfficientScoreBound, efficient_score_bound
from skquant.inspection._ceiling import RetentionCeiling, retention_ceiling
from skquant.inspection._certify import PartitionCertificate, certify_partition
from skquant.inspection._interval import RetentionInterval, retention_interval
from skquant.inspection._optimism import Optimism, optimism
from skquant.inspection._score_error import ScoreErrorBudget, score_error_budget
from skquant.inspection._stability import StabilityReport, exchange_stability

__all__ = [
    "AlignmentReport",
    "EfficientScoreBound",
    "Optimism",
    "PartitionCertificate",
    "RetentionCeiling",
    "RetentionInterval",
    "ScoreErrorBudget",
    "StabilityReport",
    "alignment_report",
    "certify_partition",
    "efficient_score_bound",
    "exchange_stability",
    "optimism",
    "retention_ceiling",
    "retention_interval",
    "score_error_budget",
]
