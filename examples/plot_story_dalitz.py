"""
===================================
Bins of a Dalitz plane for a phase
===================================

The angle gamma is measured in decays of B to D K, with the D decaying to three bodies,
from event counts in bins of the D decay's Dalitz plane. Bins of equal strong phase are
the classic choice; bins that keep the most information on the interference need fewer
decays for the same error of gamma.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.optimize import least_squares

from skquant import AffineMaxRule, DExchangeQuantizer
from skquant.information import binned_fisher_information, fisher_information
from skquant.plotting import CellsDisplay

# %%
# Raw rows
# --------
# A model of the decay to a kaon and two pions: resonances in each pair of particles,
# as Breit-Wigner amplitudes of spin 0 and 1, and one constant. Masses are in GeV. The
# decay of the antiparticle has the same amplitude with the two pions swapped.
D, K, PI = 1.865, 0.498, 0.140
TOTAL = D**2 + K**2 + 2 * PI**2


def spin_1(s, mass, width, difference):
    """Breit-Wigner amplitude times the angular factor of spin 1."""
    return difference / (mass**2 - s - 1j * mass * width)


def amplitude(plus, minus):
    """Amplitude at squared masses of the kaon with each of the pions."""
    pions = TOTAL - plus - minus
    # helicity of a resonance of the kaon and a pion, the other pion left over
    tilt_minus = pions - plus + (D**2 - PI**2) * (K**2 - PI**2) / minus
    tilt_plus = pions - minus + (D**2 - PI**2) * (K**2 - PI**2) / plus
    return (
        spin_1(pions, 0.775, 0.149, plus - minus)
        + 1.64 * np.exp(2.30j) * spin_1(minus, 0.892, 0.051, tilt_minus)
        + 0.15 * np.exp(-0.75j) * spin_1(plus, 0.892, 0.051, tilt_plus)
        + 1.7 * np.exp(-0.1j) / (1.43**2 - minus - 1j * 1.43 * 0.27)
        + 0.4 * np.exp(-2.6j) / (0.98**2 - pions - 1j * 0.98 * 0.06)
        + 1.0 * np.exp(2.0j)
    )


LOW, HIGH = (K + PI) ** 2, (D - PI) ** 2


def allowed(plus, minus):
    """Whether energy and momentum can be conserved at these squared masses."""
    # energies of kaon and second pion where the first pair is at rest bound its mass
    mass = np.sqrt(plus)
    kaon, pion = (plus + K**2 - PI**2) / (2 * mass), (D**2 - plus - PI**2) / (2 * mass)
    momenta = [np.sqrt(np.maximum(e**2 - m**2, 0)) for e, m in [(kaon, K), (pion, PI)]]
    middle = (kaon + pion) ** 2 - momenta[0] ** 2 - momenta[1] ** 2
    return np.abs(minus - middle) < 2 * momenta[0] * momenta[1]


def simulate(n, seed):
    """Squared masses, uniform in the Dalitz plane."""
    X = np.random.default_rng(seed).uniform(LOW, HIGH, size=(4 * n, 2))
    return X[allowed(*X.T)][:n]


# %%
# Scores
# ------
# The amplitude of the decay of a charged B is ``A + z conj_A`` with a small complex
# ``z = x + i y`` of modulus r and phase ``delta + gamma`` or ``delta - gamma``. Weights
# are those of ``|A|^2``; the score of x and y at 0 is twice the ratio of amplitudes,
# less its mean, since the total rate is not used.
def scores_and_weights(X):
    """Return scores of x and y less their mean, weights that sum to one, the mean."""
    here, swapped = amplitude(*X.T), amplitude(*X.T[::-1])
    weights = np.abs(here) ** 2 / np.sum(np.abs(here) ** 2)
    ratio = swapped / here
    table = 2 * np.column_stack([ratio.real, -ratio.imag])
    mean = weights @ table
    return table - mean, weights, mean


train, train_weights, _ = scores_and_weights(simulate(20_000, 0))
X = simulate(200_000, 1)
scores, weights, mean_score = scores_and_weights(X)

# %%
# Three sets of sixteen bins
# --------------------------
# A grid of the quarters of both squared masses; eight bins of equal strong phase in
# each half of the plane; and the D-optimal bins of the scores, deployed as a file.
n_bins = 16
quantizer = DExchangeQuantizer(n_bins, n_init=2, n_swaps=5, random_state=0)
quantizer.fit(train, sample_weight=train_weights)
with tempfile.TemporaryDirectory() as folder:
    quantizer.rule_.save(Path(folder, "bins.json"))
    rule = AffineMaxRule.load(Path(folder, "bins.json"))


def quarter(values):
    """Return which of four intervals of equal weight holds each value."""
    order = np.argsort(values)
    share = np.empty(len(values))
    share[order] = np.cumsum(weights[order])
    return np.minimum((4 * share).astype(int), 3)


def equal_phase(X):
    """Return which of sixteen bins holds each row, by strong phase and half."""
    phase = np.angle(amplitude(*X.T[::-1]) / amplitude(*X.T))
    phase_bin = np.minimum(((phase + np.pi) / (2 * np.pi) * 8).astype(int), 7)
    return phase_bin + 8 * (X[:, 0] > X[:, 1])


labelings = {
    "grid": 4 * quarter(X[:, 0]) + quarter(X[:, 1]),
    "equal phase": equal_phase(X),
    "D-optimal": rule.predict(scores),
}

# %%
# The error of gamma
# ------------------
# From the information on x and y of each charge, with 1000 decays of each, to the
# modulus r, the phase delta and gamma.
R, DELTA, GAMMA, N_DECAYS = 0.1, np.radians(130), np.radians(65), 1000
SIGNS = np.array([1, -1])


def mixture(r, delta, gamma):
    """Return z of both charges."""
    return r * np.exp(1j * (delta + SIGNS * gamma))


def gamma_error(information):
    """Return the standard error of gamma in degrees."""
    z = mixture(R, DELTA, GAMMA)
    total = 0.0
    for value, sign in zip(z, SIGNS, strict=True):
        slopes = np.array([value / R, 1j * value, 1j * sign * value])
        jacobian = np.array([slopes.real, slopes.imag])
        total = total + N_DECAYS * jacobian.T @ information @ jacobian
    return np.degrees(np.sqrt(np.linalg.inv(total)[2, 2]))


bound = gamma_error(fisher_information(scores, weights))
print(f"unbinned      error of gamma {bound:.2f} degrees")
errors = {}
for name, labels in labelings.items():
    errors[name] = gamma_error(binned_fisher_information(scores, labels, weights))
    cost = (errors[name] / bound) ** 2
    print(f"{name:12s}  error of gamma {errors[name]:.2f}, {cost:.2f} times the decays")

# %%
# The measurement
# ---------------
# 200 experiments: counts of both charges, fitted for r, delta and gamma with the bins'
# integrals of the two amplitudes and of their interference.
here, swapped = amplitude(*X.T), amplitude(*X.T[::-1])
integrands = np.array(
    [
        np.abs(here) ** 2,
        np.abs(swapped) ** 2,
        2 * (here.conj() * swapped).real,
        -2 * (here.conj() * swapped).imag,
    ]
)


def expected_counts(parameters, integrals):
    """Return expected counts of both charges in every bin."""
    z = mixture(*parameters)[:, None]
    own, other, real, imaginary = integrals
    rates = own + np.abs(z) ** 2 * other + z.real * real + z.imag * imaginary
    return N_DECAYS * rates / rates.sum(axis=1, keepdims=True)


def fit_gamma(observed, integrals):
    """Return the maximum-likelihood gamma in degrees."""

    def deviances(parameters):
        mean = expected_counts(parameters, integrals)
        half = mean - observed
        half += observed * np.log(np.where(observed > 0, observed, mean) / mean)
        root = np.sqrt(2 * np.maximum(half, 0.0))
        return (np.sign(observed - mean) * root).ravel()

    fit = least_squares(deviances, [R, DELTA, GAMMA], x_scale=[0.01, 0.1, 0.1])
    return np.degrees(fit.x[2])


rng = np.random.default_rng(2)
fitted = {}
for name, labels in labelings.items():
    integrals = np.array(
        [np.bincount(labels, each, minlength=n_bins) for each in integrands]
    )
    mean = expected_counts((R, DELTA, GAMMA), integrals)
    fitted[name] = np.array(
        [fit_gamma(rng.poisson(mean), integrals) for _ in range(200)]
    )
    spread = np.subtract(*np.quantile(fitted[name], [0.84, 0.16])) / 2
    print(f"{name:12s}  fitted gamma {np.median(fitted[name]):.1f} +- {spread:.1f}")
saved = 1 - (errors["D-optimal"] / errors["equal phase"]) ** 2
print(f"D-optimal bins need {saved:.0%} fewer decays than bins of equal phase")

# %%
# The picture
# -----------
# Above, bins in the Dalitz plane, each with its number where it is widest. Below, the
# D-optimal bins where the rule sees them, in the plane of the scores, areas in
# proportion to the weights; and the experiments, with predicted errors as bars and the
# unbinned error as a band; a few fits on the grid lie outside the picture.
figure, axes = plt.subplots(2, 2, figsize=(10.5, 9.6), layout="constrained")
side = np.linspace(LOW, HIGH, 500)
mesh = np.stack(np.meshgrid(side, side), axis=-1)
inside = allowed(mesh[..., 0], mesh[..., 1])
mesh_scores, _, mesh_mean = scores_and_weights(mesh[inside])
pictures = {
    "equal phase": equal_phase(mesh[inside]),
    "D-optimal": rule.predict(mesh_scores + mesh_mean - mean_score),
}
for axis, (name, labels) in zip(axes[0], pictures.items(), strict=True):
    image = np.full(inside.shape, np.nan)
    image[inside] = labels
    axis.pcolormesh(side, side, image, cmap="cividis", alpha=0.6, rasterized=True)
    for cell in range(n_bins):
        axis.contour(side, side, image == cell, [0.5], colors="k", linewidths=0.5)
        depth = distance_transform_edt(image == cell)
        row, column = np.unravel_index(depth.argmax(), depth.shape)
        axis.text(side[column], side[row], str(cell), ha="center", va="center")
    axis.set(xlabel=r"squared mass of K and $\pi^+$ [GeV$^2$]")
    axis.set(ylabel=r"squared mass of K and $\pi^-$ [GeV$^2$]", title=f"Bins: {name}")
left, right = axes[1]
CellsDisplay.from_estimator(
    rule,
    scores[:20_000],
    sample_weight=weights[:20_000],
    limits=[(-7, 7), (-7, 7)],
    ax=left,
)
left.set(
    xlabel="score of x",
    ylabel="score of y",
    title="D-optimal bins where the rule sees them",
)
jitter = np.linspace(-0.25, 0.25, 200)
colors = ["#999999", "#E69F00", "#0072B2"]
true = np.degrees(GAMMA)
for place, (name, color) in enumerate(zip(fitted, colors, strict=True)):
    right.plot(place + jitter, fitted[name], ".", color=color, markersize=3)
    right.errorbar(place, true, errors[name], fmt="ks", capsize=6, linewidth=2)
right.axhspan(true - bound, true + bound, color="#dddddd", zorder=0)
right.set_xticks(range(3), [f"{name}\n{errors[name]:.1f} degrees" for name in fitted])
right.set(xlim=(-0.5, 2.5), ylim=(-30, 160), ylabel="fitted gamma [degrees]")
right.set_title(f"Error of gamma; the band is unbinned, {bound:.1f} degrees")
plt.savefig("plot_story_dalitz.png", dpi=110)
