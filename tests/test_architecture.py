"""The arrows of the house: who may import whom, and how long a module may be."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "skquant"
FILES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(
        ".__init__"
    ): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

# Longer than 500 lines, and why.
LONG = {
    "quantizers/_base.py": "fit, predict and score of all quantizers",
    "criteria.py": "one class a criterion; two thirds are docstrings",
    "scores.py": "three transformers on one base; half is docstrings",
    "relaxation/_categorical.py": "nine public functions; half is docstrings",
    "relaxation/_perturbation.py": "seven public functions; half is docstrings",
    "relaxation/_projections.py": "eight public functions; half is docstrings",
    "relaxation/_smoothing.py": "eight public functions; half is docstrings",
    "relaxation/_structures.py": "seven polytopes on one base; half is docstrings",
    "solvers/_exchange.py": "one loop with two passes, compiled and for any criterion",
    "_kernels/exchange.pyx": "one pass, with the gain of three criteria",
}


def imports(path, late):
    """Modules that a file imports, at import time or within functions too."""
    found = set()

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                found.update(alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{path} has a relative import"
                found.add(child.module)
                found.update(f"{child.module}.{alias.name}" for alias in child.names)
            elif isinstance(child, ast.If) and ast.unparse(child.test).endswith(
                "TYPE_CHECKING"
            ):
                continue
            elif late or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                visit(child)

    visit(ast.parse(path.read_text(encoding="utf-8")))
    return found


def within(name, package):
    return name == package or name.startswith(package + ".")


EARLY = {name: imports(path, late=False) for name, path in FILES.items()}
ALL = {name: imports(path, late=True) for name, path in FILES.items()}


def test_the_reader_of_imports_sees_them():
    assert "skquant.rules" in EARLY["skquant.quantizers._base"]
    assert "skquant._exports" not in EARLY["skquant.rules"]
    assert "skquant._exports" in ALL["skquant.rules"]


# what the left must not know of, even in a function
FORBIDDEN = [
    ("skquant.solvers", "skquant.quantizers"),
    ("skquant.solvers", "skquant.rules"),
    ("skquant.solvers", "skquant.inspection"),
    ("skquant.criteria", "skquant.solvers"),
    ("skquant.criteria", "skquant.quantizers"),
    ("skquant.criteria", "skquant._table"),
    ("skquant._moments", "skquant.criteria"),
    ("skquant._table", "skquant.solvers"),
    ("skquant.inspection", "skquant.report"),
    ("skquant.information", "skquant.quantizers"),
    ("skquant.rules", "skquant.solvers"),
    ("skquant.rules", "skquant.quantizers"),
    ("skquant.relaxation", "skquant.quantizers"),
    ("skquant.scores", "skquant.quantizers"),
    ("skquant.scores", "skquant.solvers"),
]


@pytest.mark.parametrize(("left", "right"), FORBIDDEN)
def test_an_arrow_never_points_back(left, right):
    guilty = {
        name: sorted(each for each in ALL[name] if within(each, right))
        for name in FILES
        if within(name, left)
    }
    assert guilty, f"{left} is gone"
    assert not {name: found for name, found in guilty.items() if found}


def test_a_rule_needs_numpy_and_the_standard_library_only():
    """Also through what it imports of skquant when it is imported."""
    seen, open_ = set(), ["skquant.rules"]
    foreign = set()
    while open_:
        name = open_.pop()
        seen.add(name)
        for each in EARLY[name]:
            if within(each, "skquant"):
                if each in FILES and each not in seen:
                    open_.append(each)
            else:
                foreign.add(each.split(".")[0])
    assert "skquant.responsibilities" in seen
    assert foreign - set(sys.stdlib_module_names) == {"numpy"}


def test_private_helpers_of_scikit_learn_are_in_one_module():
    # scikit-learn documents this one, underscore and all
    documented = {"sklearn.utils._safe_indexing"}
    private = {
        name
        for name in FILES
        if any(
            within(each, "sklearn") and any(part[0] == "_" for part in each.split("."))
            for each in ALL[name] - documented
        )
    }
    assert private == {"skquant._checks"}


def test_only_the_criteria_know_their_classes():
    """No ``isinstance`` on a concrete criterion outside its module."""
    concrete = {"NormalizedTrace", "DOptimality", "AOptimality", "EOptimality"}
    concrete |= {"PowerMean", "ProfiledDOptimality"}
    for name, path in FILES.items():
        if name == "skquant.criteria":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                named = {each.id for each in ast.walk(node) if hasattr(each, "id")}
                assert not named & concrete, f"{name}:{node.lineno}"


def test_there_is_no_cycle_of_imports():
    graph = {
        name: {each for each in found if each in FILES and each != name}
        for name, found in ALL.items()
    }
    done, path = set(), []

    def walk(name):
        assert name not in path, " -> ".join([*path, name])
        if name in done:
            return
        path.append(name)
        for each in sorted(graph[name]):
            walk(each)
        path.pop()
        done.add(name)

    for name in graph:
        walk(name)
    assert done == set(FILES)


def test_long_modules_are_listed_with_a_reason():
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text().splitlines())
        for kind in ("*.py", "*.pyx")
        for path in PACKAGE.rglob(kind)
    }
    assert {name for name, lines in lengths.items() if lines > 500} == set(LONG)
