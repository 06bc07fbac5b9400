"""Warnings that skquant raises beside scikit-learn's own."""

__all__ = [
    "DegenerateInformationWarning",
    "RuleExtensionWarning",
    "ScoreOffsetWarning",
]


class DegenerateInformationWarning(UserWarning):
    """The retained information is singular, or close enough to be worthless.

    Raised when ``n_bins`` lies below the rank ceiling of a criterion that needs
    a nonsingular retained matrix, and when a profiled fit keeps almost nothing
    of its nuisance block.
    """


class RuleExtensionWarning(UserWarning):
    """The deployable rule does not reproduce every training label.

    Free labels of a finite table need not be the cells of a rule of score
    space. The warning gives the weighted share of rows that the rule places
    elsewhere; ``rule_agreement_`` holds the complement.
    """


class ScoreOffsetWarning(UserWarning):
    """The weighted mean of a column is more than ten times its spread.

    Such a column is hardly a score, whose mean at the reference parameter is about
    zero. A constant column, the score of a rate, raises nothing.
    """
