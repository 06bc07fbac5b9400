"""Warnings at the user's own line."""

import sys
import warnings
from pathlib import Path

import joblib
import sklearn

# Between the user's call and a warning lie frames of these.
_OURS = tuple(
    str(Path(file).parent) for file in (__file__, sklearn.__file__, joblib.__file__)
)
_PASSED_THROUGH = ("contextlib.py", "functools.py")


def warn_user(message, category=UserWarning):
    """Warn at the first line of the stack that is no library's: the user's.

    So it is in ``fit``, ``fit_predict``, a pipeline and a search alike, and Python
    shows it once a line and message.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _is_library(frame.f_code.co_filename):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def _is_library(file):
    return file.startswith(_OURS) or file.endswith(_PASSED_THROUGH)
