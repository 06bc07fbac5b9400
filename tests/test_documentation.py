"""Docstrings are accepted by numpydoc, and every code block of the pages runs."""

import doctest
import importlib
import inspect
import pkgutil
import re
import sys
from pathlib import Path

import pytest
from numpydoc.validate import validate

import skquant
from skquant.responsibilities import RELAXATIONS

DOC = Path(__file__).parents[1] / "doc"
PAGES = sorted(
    path
    for path in DOC.rglob("*.rst")
    if not {"_build", "_templates", "auto_examples", "generated"}
    & set(path.relative_to(DOC).parts)
)

# Not asked of a docstring: an extended summary, a list of relatives, an example in
# every method, and nameless returns (a name says what it is).
NOT_ASKED = {"ES01", "SA01", "EX01", "RT02"}


def public_modules():
    names = ["skquant"] + [
        f"skquant.{each.name}"
        for each in pkgutil.iter_modules(skquant.__path__)
        if not each.name.startswith("_")
    ]
    modules = [importlib.import_module(name) for name in names]
    return [each for each in modules if hasattr(each, "__all__")]


def own_members(cls):
    """Public methods and properties of a class that skquant wrote."""
    for name in dir(cls):
        static = inspect.getattr_static(cls, name)
        function = static.fget if isinstance(static, property) else static
        home = getattr(inspect.unwrap(getattr(cls, name)), "__module__", None)
        if isinstance(static, property):
            home = function.__module__
        if not name.startswith("_") and str(home).startswith("skquant"):
            yield name


def public_objects():
    """Name of each public object, once, and of each of its members."""
    home = {}
    # the package first: a class belongs to the module that users see last
    for module in public_modules():
        for name in module.__all__:
            home[id(getattr(module, name))] = f"{module.__name__}.{name}"
    for full_name in sorted(home.values()):
        module, _, name = full_name.rpartition(".")
        yield full_name
        public = getattr(importlib.import_module(module), name)
        if inspect.isclass(public):
            yield from (f"{full_name}.{each}" for each in own_members(public))


OBJECTS = list(public_objects())


def test_all_public_objects_are_seen():
    assert len(OBJECTS) > 150
    assert "skquant.DExchangeQuantizer.fit" in OBJECTS
    assert "skquant.criteria.DOptimality.gradient" in OBJECTS
    assert "skquant.compression.ScoreCompressor.atoms_" in OBJECTS


@pytest.mark.parametrize("name", OBJECTS)
def test_docstring_is_valid(name):
    result = validate(name)
    errors = {code: text for code, text in result["errors"] if code not in NOT_ASKED}
    if hasattr(result_class(name), "__dataclass_fields__"):
        # a frozen record is built by us and read by users: fields are attributes
        if "Attributes\n" in result["docstring"]:
            errors.pop("PR01", None)
    assert not errors


def result_class(name):
    module, _, attribute = name.rpartition(".")
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError:
        return None


def test_a_record_documents_its_fields():
    records = [
        each
        for each in map(result_class, OBJECTS)
        if hasattr(each, "__dataclass_fields__")
    ]
    assert len(records) > 5
    for record in records:
        section = inspect.getdoc(record).split("Attributes\n---")[1]
        for field in record.__dataclass_fields__:
            if not field.startswith("_"):
                assert re.search(rf"\b{field}\b", section), (record, field)


def test_public_functions_have_examples():
    for name in OBJECTS:
        public = result_class(name)
        if inspect.isfunction(public):
            assert ">>>" in public.__doc__, name


def test_reference_lists_every_public_object():
    pages = [path for path in (DOC / "api").glob("*.rst") if path.stem != "index"]
    text = "".join(path.read_text() for path in pages)
    listed = re.findall(r"^   (\w+)$", text, re.M)
    public = {name.split(".")[-1] for name in OBJECTS if result_class(name) is not None}
    assert len(listed) == len(public)
    assert set(listed) == public
    linked = re.findall(r"^   (\w+)$", (DOC / "api" / "index.rst").read_text(), re.M)
    assert set(linked) == {path.stem for path in pages}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_code_of_page_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # the extensions are imported anew, and what they register is undone
    monkeypatch.syspath_prepend(str(DOC / "extensions"))
    for extension in (DOC / "extensions").glob("*.py"):
        monkeypatch.delitem(sys.modules, extension.stem, raising=False)
    registered = dict(RELAXATIONS)
    result = doctest.testfile(
        str(path),
        module_relative=False,
        optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS,
        encoding="utf-8",
    )
    RELAXATIONS.clear()
    RELAXATIONS.update(registered)
    assert result.failed == 0


def test_code_of_readme_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = DOC.with_name("README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    exec(compile(block, "README.md", "exec"), {})
    retention, title = capsys.readouterr().out.splitlines()[:2]
    # the comment in the block and the text below it
    assert f"{float(retention):.2f}" == "0.64" and text.count("0.64") == 3
    assert title == "Fisher information kept by 8 cells"


def test_no_code_of_a_page_is_left_unrun():
    """Python is shown as a doctest or included from a file that a test imports."""
    assert len(PAGES) > 10
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*\.\. code(-block)?::\s*python", text, re.M), path
        for block in re.findall(r"::\n\n((?:    .*\n|\n)+)", text):
            assert "import " not in block or ">>>" in block, (path, block)
        for name in re.findall(r"literalinclude:: (\S+)", text):
            tested = (Path(__file__).parent / "test_extensions.py").read_text()
            assert (path.parent / name).exists()
            assert Path(name).stem in tested


def test_one_version_everywhere():
    root = DOC.parent
    citation = (root / "CITATION.cff").read_text(encoding="utf-8")
    (version,) = re.findall(r"^version: (\S+)$", citation, re.M)
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    latest = re.findall(r"^## (\S+)", changes, re.M)[0]
    assert version == latest == skquant.__version__
