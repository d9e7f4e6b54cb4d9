"""What the documents show runs, and the demo makes what it promises."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

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
    "module", ["lysep.state", "lysep.callbacks", "lysep.training", "lysep.baselines", "lysep.scoring"]
)
def test_examples_in_docstrings_hold(module):
    import doctest
    import importlib

    results = doctest.testmod(importlib.import_module(f"lysep.{module}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_demo_draws_its_pictures_and_prints_its_table(tmp_path):
    command = [sys.executable, ROOT / "examples" / "circle.py", "--out", tmp_path, "--sweeps", "5", "--steps", "5"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for name in ("curves.png", "regions.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "history.csv").read_text().count("\n") == 6
    rows = [line for line in done.stdout.splitlines() if "%" in line]
    assert len(rows) == 4
    assert done.stderr == ""
    for step in range(1, 6):  # without a terminal for a bar, plain lines say how far each of the four methods is
        assert done.stdout.count(f"  {step} of 5: loss ") == 4
