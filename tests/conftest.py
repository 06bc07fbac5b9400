"""Fixtures of several modules."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(scope="module")
def one_thread():
    """One thread: those of BLAS cost more than tiny matrices."""
    with threadpool_limits(1):
        yield
