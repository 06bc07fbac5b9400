"""Smoothing the argmax: everything that stands in for the derivative of a hard label.

Functions take NumPy arrays whose last axis is the categories (or coordinates, or grid
nodes) and any leading axes; ``random_state`` is an int, a RandomState, a Generator or
None. Gumbel noise has mean zero throughout.

Names are imported on first use, so that a deployed rule needs NumPy only.
"""

import importlib

_MODULES = {
    "_smoothing": [
        "gaussian_kernel",
        "gaussian_smooth",
        "smoothed_relu",
        "smoothed_step",
        "soft_biconjugate",
        "soft_conjugate",
        "soft_infimal_convolution",
        "soft_moreau_envelope",
    ],
    "_perturbation": [
        "forward_mode_gradient",
        "perturbed_argmax",
        "perturbed_argmax_jacobian",
        "perturbed_argmax_vjp",
        "perturbed_gradient",
        "perturbed_max",
        "perturbed_value",
    ],
    "_categorical": [
        "argmax_probabilities",
        "concrete_logpdf",
        "conditional_gumbel",
        "expected_max",
        "gumbel_max",
        "gumbel_quantile",
        "gumbel_softmax",
        "perturbed_comparison",
        "sample_gumbel",
    ],
    "_sampled_labels": [
        "RunningMean",
        "exact_gradient",
        "score_function_gradient",
        "straight_through_gradient",
    ],
    "_projections": [
        "birkhoff_projection",
        "capped_simplex",
        "capped_simplex_vjp",
        "sinkhorn",
        "softmax",
        "softmax_vjp",
        "sparsemax",
        "sparsemax_vjp",
    ],
    "_structures": [
        "Arborescence",
        "ChainKSubset",
        "Hypercube",
        "KSubset",
        "Matching",
        "Simplex",
        "SpanningTree",
        "sample_structure",
    ],
    "_occupancy": [
        "balanced_responsibilities",
        "perturbed_labels",
        "soft_responsibilities",
    ],
}
_MODULE_OF = {
    name: f"{__name__}.{module}" for module, names in _MODULES.items() for name in names
}
_MODULE_OF["optimize_rule"] = "skquant.solvers._black_box"

__all__ = sorted(_MODULE_OF)


def __getattr__(name):
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__():
    return __all__
