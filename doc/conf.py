"""Sphinx configuration: one command builds the site, without network.

``python -m sphinx -W --keep-going -b html doc doc/_build/html``
"""

import inspect
import shutil
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.resources import files
from pathlib import Path

import matplotlib
from sphinx_gallery.sorting import ExplicitOrder

# ``python -m`` looks in the checkout first, where only an editable install has kernels
ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "skquant" / "_kernels" / "exchange"
if not any(Path(f"{KERNEL}{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
    sys.path[:] = [each for each in sys.path if Path(each).resolve() != ROOT]

import skquant  # noqa: E402

matplotlib.use("Agg")

project = "skquant"
author = "The skquant developers"
copyright = "The skquant developers"
version = release = skquant.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "auto_examples/*.ipynb", "extensions"]
templates_path = ["_templates"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

# of the package django-static-mathjax, which needs no Django; see copy_mathjax
mathjax_path = "mathjax/tex-chtml.js"

autosummary_generate = True
# a name in single backticks links to its page
default_role = "autolink"
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
# what is typed has straight quotes
smartquotes = False
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    # the way of a newcomer: start, stories, choices, trust, scale, then the parts
    "within_subsection_order": ExplicitOrder(
        [
            f"plot_{name}.py"
            for name in (
                "quickstart",
                "story_signal",
                "story_dalitz",
                "class_fractions",
                "displays",
                "pipeline",
                "profiled_trap",
                "figure_of_merit",
                "certainty",
                "consistency",
                "compression",
                "cooling",
                "purification",
                "smoothing",
                "gumbel_rao",
            )
        ]
        + ["*"]
    ),
    "thumbnail_size": (800, 560),
    "download_all_examples": False,
    "remove_config_comments": True,
    "show_memory": False,
    # that page takes scripts from other hosts
    "write_computation_times": False,
    "abort_on_example_error": False,
}

html_theme = "pydata_sphinx_theme"
html_title = f"skquant {version}"
html_static_path = ["_static"]
html_css_files = ["skquant.css"]
html_show_sourcelink = False
# pages without a page below
html_sidebars = {
    page: []
    for page in (
        "getting_started",
        "mathematics",
        "performance",
        "comparison",
        "contributing",
        "changelog",
    )
}
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}


def skip_foreign_members(app, what, name, member, skip, options):
    """Leave out what scikit-learn documents, with links into its own pages."""
    function = member.fget if isinstance(member, property) else member
    home = getattr(inspect.unwrap(function), "__module__", "") or ""
    if home.startswith("sklearn") or name.endswith("_request"):
        return True
    return skip


def copy_mathjax(app, exception):
    """Put MathJax and its fonts beside the pages, which then need no other host."""
    if exception is None and app.builder.format == "html":
        source = Path(str(files("mathjax"))) / "static" / "mathjax" / "es5"
        target = Path(app.outdir) / "_static" / "mathjax"
        fonts = Path("output", "chtml", "fonts", "woff-v2")
        shutil.copytree(source / fonts, target / fonts, dirs_exist_ok=True)
        shutil.copy(source / "tex-chtml.js", target)


def setup(app):
    """Connect the filter of members and the copy of MathJax."""
    app.connect("autodoc-skip-member", skip_foreign_members)
    app.connect("build-finished", copy_mathjax)
