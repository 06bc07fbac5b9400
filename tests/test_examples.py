"""Every example runs as it is, without a warning, and leaves its picture."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted(Path(__file__).parents[1].joinpath("examples").glob("plot_*.py"))
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def test_there_are_examples():
    assert "plot_quickstart.py" in [path.name for path in EXAMPLES]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    # Warnings are errors in the example and in every process that it starts, but for
    # advice of pyparsing to its callers, which this setting would turn on (matplotlib
    # before 3.9 does not follow it).
    warnings = "error,ignore:::pyparsing"
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONWARNINGS": warnings}
    run = subprocess.run(
        [sys.executable, str(path)],
        cwd=tmp_path,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "Warning" not in run.stderr

    picture = (tmp_path / path.stem).with_suffix(".png").read_bytes()
    assert picture.startswith(PNG_SIGNATURE)
    assert len(picture) > 10_000
    assert [each.name for each in tmp_path.iterdir()] == [f"{path.stem}.png"]

    if path.stem == "plot_quickstart":
        check_quickstart_table(run.stdout)


def check_quickstart_table(text):
    rows = {
        line.split()[0]: [float(each) for each in line.split()[1:]]
        for line in text.splitlines()
        if line.partition(" ")[0].endswith("Quantizer")
    }
    assert set(rows) == {
        "KMeansQuantizer",
        "DExchangeQuantizer",
        "SoftVoronoiQuantizer",
    }
    for cells, geometric, arithmetic, worst, _, _ in rows.values():
        assert cells == 24
        assert 0.9 < worst < geometric <= arithmetic < 1.0
    assert "bound, unbinned" in text
