"""What the documents show runs, and the demo makes what it promises."""

import contextlib
import html.parser
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import lysep
import lysep.cli

ROOT = Path(__file__).parent.parent


def test_the_code_in_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    assert len(blocks) == 3
    names = {"X_val": torch.rand(50, 2), "y_val": torch.randint(0, 2, (50,))}
    for block in blocks:
        exec(block, names)
    assert names["result"].history["accuracy"][-1] > 0.9
    assert names["loss"].cross_entropy <= names["loss"].bound


def test_links_in_the_documents_lead_somewhere():
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"


@pytest.mark.parametrize(
    "module",
    [
        "lysep.state",
        "lysep.callbacks",
        "lysep.training",
        "lysep.baselines",
        "lysep.scoring",
        "lysep.estimator",
        "lysep.preprocessing",
        "lysep.saving",
        "lysep.evaluation",
        "lysep.inspection",
    ],
)
def test_examples_in_docstrings_hold(module):
    import doctest
    import importlib

    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_demo_draws_its_pictures_and_prints_its_table(tmp_path):
    command = [sys.executable, ROOT / "examples" / "circle.py", "--out", tmp_path, "--sweeps", "5", "--steps", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("curves.png", "regions.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "history.csv").read_text().count("\n") == 6
    rows = [line for line in done.stdout.splitlines() if "%" in line]
    assert len(rows) == 5
    assert done.stderr == ""
    for step in range(1, 6):  # without a terminal for a bar, plain lines say how far each of the five methods is
        assert done.stdout.count(f"  {step} of 5: loss ") == 5


PAGES = ["tables.md", "images.md", "continue.md", "when.md"]


@pytest.fixture(scope="module")
def iris(tmp_path_factory):
    """The files that the page on tables makes, for the commands of other pages."""
    directory = tmp_path_factory.mktemp("iris")
    first = next(re.finditer(r"```python\n(.*?)```", (ROOT / "docs" / "tables.md").read_text(), flags=re.DOTALL))
    with contextlib.chdir(directory):
        exec(first[1], {})
    return directory


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_of_a_page_run(page, tmp_path, monkeypatch, iris):
    shutil.copytree(iris, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(python|console)\n(.*?)```", (ROOT / "docs" / page).read_text(), flags=re.DOTALL)
    assert any(kind == "python" for kind, _ in blocks)
    names = {}
    for kind, block in blocks:
        if kind == "python":
            exec(block, names)
            continue
        for line in block.splitlines():
            assert line.startswith("$ lysep "), line
            assert lysep.cli.main(shlex.split(line)[2:]) == 0, line


# -- the site ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", directory]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return directory


class Addresses(html.parser.HTMLParser):
    """What a page loads, where its links lead, and what can be pointed at in it."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if tag in ("script", "img", "link", "iframe"):
            self.loaded += [found[name] for name in ("src", "href") if name in found]
        elif tag == "a" and "href" in found:
            self.links.append(found["href"])
        if "id" in found:
            self.anchors.add(found["id"])


def test_the_site_loads_nothing_from_elsewhere_and_its_links_lead_somewhere(site):
    pages = {page: Addresses(page.read_text()) for page in site.rglob("*.html") if page.name != "404.html"}
    assert {f"{page.removesuffix('.md')}.html" for page in [*PAGES, "method.md", "add-a-link.md", "api.md"]} <= {
        page.name for page in pages
    }
    for page, addresses in pages.items():
        for address in addresses.loaded:
            assert not re.match(r"(https?:)?//", address), f"{page.name} loads {address}"
        for link in [*addresses.loaded, *addresses.links]:
            path, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link) or path in ("", "."):
                continue
            target = (page.parent / path.partition("?")[0]).resolve()
            assert target.exists(), f"{page.name} links to {link}"
            assert not anchor or target not in pages or anchor in pages[target].anchors, f"{page.name}: {link}"
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*['\"]?(https?:)?//", sheet.read_text()), sheet.name


def test_every_public_name_is_in_the_reference(site):
    anchors = Addresses((site / "api.html").read_text()).anchors
    documented = {anchor.rpartition(".")[2] for anchor in anchors}
    assert set(lysep.__all__) <= documented
