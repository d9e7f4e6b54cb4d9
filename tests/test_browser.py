"""The report in a real browser: headless Chromium, which `make test-browser` needs and `make test` leaves out."""

import json
import re
import shutil
import subprocess

import pytest

import hand_made
from lysep.studies.paper import FIGURES
from lysep.studies.report import write_report

pytestmark = pytest.mark.browser

# A copy of the page tells what the browser made of it.
WITNESS = """<script>
const errors = [];
addEventListener("error", e => errors.push(String(e.message || e.target.outerHTML.slice(0, 80))), true);
addEventListener("load", () => {
  const images = [...document.images].map(i => ({alt: i.alt, width: i.naturalWidth, shown: i.clientWidth}));
  const rows = [...document.querySelectorAll("tbody tr")].filter(r => r.getBoundingClientRect().height > 0).length;
  const wide = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const found = document.createElement("pre");
  found.id = "found";
  found.textContent = JSON.stringify({errors, images, rows, wide});
  document.body.append(found);
});
</script>"""


def looked_at(page, text, folder):
    """What the browser found, and what it wrote to its console."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert chromium, "Chromium is not installed: apt-get install chromium"
    copy = page.with_name("witnessed.html")
    copy.write_text(text.replace("</head>", f"{WITNESS}</head>"))
    options = "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking"
    options += " --disable-component-update --disable-sync --enable-logging=stderr --window-size=1400,1000"
    ran = subprocess.run(
        [
            chromium,
            *options.split(),
            f"--user-data-dir={folder}",
            "--virtual-time-budget=10000",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', ran.stdout, re.DOTALL)
    assert found, ran.stderr
    return json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")), [
        line for line in ran.stderr.splitlines() if "CONSOLE" in line
    ]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    return write_report(hand_made.store_for_every_table(folder / "runs"), folder / "out")


def test_every_figure_is_visible_and_the_console_is_silent(page, tmp_path):
    found, console = looked_at(page, page.read_text(), tmp_path)
    assert console == []
    assert found["errors"] == []
    assert len(found["images"]) == len(FIGURES)
    for image in found["images"]:
        assert image["width"] > 300, image
        assert image["shown"] > 300, image
    assert found["rows"] >= 20 + 48 + 27
    assert not found["wide"]  # wide tables scroll by themselves


@pytest.mark.parametrize(
    ("damage", "symptom"),
    [
        (lambda text: text.replace("base64,PD94", "base64,AAAA", 1), lambda found, console: found["errors"]),
        (lambda text: text.replace("</body>", "<script>console.error('x')</script></body>"), lambda found, c: c),
        (lambda text: text.replace("</body>", "<script>missing()</script></body>"), lambda found, c: found["errors"]),
    ],
)
def test_the_witness_sees_what_is_broken(page, tmp_path, damage, symptom):
    damaged = damage(page.read_text())
    assert damaged != page.read_text()
    assert symptom(*looked_at(page, damaged, tmp_path))
