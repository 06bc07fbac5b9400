"""The reported efficiency of a criterion and its gradients."""

import numpy as np


def efficiency_gradients(criterion, information, reference):
    """Return the efficiency's gradients in the retained and the full information.

    An efficiency is a function of the value, and of degree one in the retained
    information: that gives the factor between the two gradients. It does not change
    under one linear map of both matrices (a criterion of columns: it is the ratio of
    one function of both): that gives the gradient in the full information.

    Raises
    ------
    ValueError
        Where the criterion has no gradient, or its efficiency is not of degree one.
    """
    efficiency = criterion.efficiency(information, reference)
    half = criterion.efficiency(0.5 * information, reference)
    if not np.isclose(half, 0.5 * efficiency, rtol=1e-9, atol=0.0):
        raise ValueError(
            f"criterion {criterion!r} must have an efficiency of degree one in the "
            f"retained information; half of it has {half:.6g}, all of it "
            f"{efficiency:.6g}. Use method='bootstrap'."
        )
    pure = criterion.reported()

    def scaled(matrix, value):
        gradient = pure.gradient(matrix, reference)
        return gradient * (value / np.sum(gradient * matrix))

    in_retained = scaled(information, efficiency)
    if criterion.needs_columns:
        return in_retained, -efficiency * scaled(reference, 1.0)
    product = np.linalg.solve(reference, information @ in_retained)
    return in_retained, -0.5 * (product + product.T)
