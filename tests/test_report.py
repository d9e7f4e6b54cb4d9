"""The report (studies/report.py, page.py, figures.py), of runs made by hand."""

import base64
import re
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import pytest

import hand_made
from lysep.cli import main
from lysep.studies.figures import band, curve
from lysep.studies.paper import ALL_TABLES, FIGURES, STAND_INS, TABLES, Cell
from lysep.studies.report import notes, write_report
from lysep.studies.runs import Store
from lysep.studies.tuning import trials


class Page(HTMLParser):
    """What a browser would fetch or show; refuses tags that are not closed in order."""

    VOID = frozenset(("meta", "link", "img", "br"))

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.ids, self.text, self.rows = [], [], {}, [], {}
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append((tag, attributes))
        if tag not in self.VOID:
            self.open.append((tag, attributes))
        if tag == "tr":
            self.rows.setdefault(self.section, []).append([])
        elif tag in ("td", "th"):
            self.rows[self.section][-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        self.text.append(data)
        if self.open and self.open[-1][0] in ("td", "th"):
            self.rows[self.section][-1][-1] += data

    @property
    def section(self):
        return next(a["id"] for tag, a in self.open if tag == "section")

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    """A report of a few runs of every table."""
    folder = tmp_path_factory.mktemp("reported")
    store = hand_made.store_for_every_table(folder / "runs")
    assert main(["report", str(store.folder), "-o", str(folder / "out")]) == 0
    return folder / "out"


@pytest.fixture(scope="module")
def page(reported):
    return Page((reported / "index.html").read_text())


def test_the_page_needs_nothing_beside_it(reported, page):
    text = (reported / "index.html").read_text()
    for tag, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            assert attributes.get(name, "data:").startswith(("data:", "#")), (tag, attributes)
        assert not any(name.startswith("on") for name in attributes)
    assert page.all("script") == page.all("iframe") == []
    assert not re.search(r"url\(|@import", text)


def test_every_figure_is_there_and_is_a_picture(reported, page):
    pictures = page.all("img")
    assert len(pictures) == len(FIGURES)
    for name, attributes in zip(FIGURES, pictures, strict=True):
        kind, content = attributes["src"].split(",", 1)
        assert kind == "data:image/svg+xml;base64"
        drawing = ElementTree.fromstring(base64.b64decode(content))
        assert drawing.tag.endswith("}svg")
        assert len(list(drawing.iter())) > 50
        assert attributes["alt"].startswith(f"Figure {name[-1]}")
        assert (reported / f"{name}.svg").read_bytes() == base64.b64decode(content)
        assert (reported / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_links_within_the_page_lead_somewhere(page):
    ids = [attributes["id"] for attributes in page.all("section")]
    assert len(set(ids)) == len(ids)
    targets = [attributes["href"][1:] for attributes in page.all("a")]
    assert targets == [*TABLES, "table3-digits"]
    assert set(targets) <= set(ids)


def test_every_row_of_every_table_is_there_run_or_not(reported, page):
    for table in ALL_TABLES:
        if not table.stand_in:
            lines = (reported / f"{table.name}.md").read_text().splitlines()
            assert sum(line.startswith("| (") for line in lines) == 1 + len(table.cells)
    for table in TABLES.values():
        shown = [row for row in page.rows[table.name] if len(row) > 10]
        assert len(shown) == 1 + len(table.cells)  # and the heads
    text = "".join(page.text)
    assert "(3,16)" in text
    assert sum(row.count("not run") for row in page.rows["table1"]) == 20 - 4


def test_a_row_has_the_papers_figure_ours_the_difference_and_the_seeds(page):
    row = next(row for row in page.rows["table1"] if row[:2] == ["(3,10)", "LySep"])
    assert row[2:5] == ["2", "1", "4"]  # seeds, failed, iterations
    assert row[5:8] == ["6.75e-03 ± 3.00e-03", "2.00e-02 ± 1.41e-02", "+4.4"]


def test_what_failed_and_what_fell_short_is_said(page):
    text = " ".join("".join(page.text).split())
    assert "2 of 21 runs, those to tune by included" in text
    assert "made <to> fail" in text  # escaped, or it would be a tag
    assert "Worse than the paper's LySep row by more than two of its standard deviations: (3,10)" in text
    assert "Not run: (3,10): CE, Adam and CE, L-BFGS; (3,16); (3,20); (10,10); (20,10): CE, Adam and" in text
    assert "Fewer seeds than the paper's 10" in text
    assert "Fewer iterations than the paper's 10,000" in text
    assert "Table 1: circle-in/out classification: 4 of 20 rows run, 1 to 2 seeds each; failed runs: 1" in text
    assert "abacus" in text


def test_the_grid_shows_what_was_chosen_from(reported):
    text = (reported / "index.html").read_text()
    late = 1.0 + (0.2 - 1.0) * 875.5 / 1000  # the mean of the last quarter of a fall from 1 to 0.2
    assert re.findall(r"class=chosen>(.*?)</td>", text) == [f"{late:.2e}"]
    assert ">failed</td>" in text


def test_a_choice_at_the_edge_of_its_grid_is_said():
    def said(losses):
        tried = [hand_made.tuning_run(loss, learning_rate=rate) for rate, loss in losses.items()]
        table = TABLES["table1"]
        return [note for note in notes(table, [], trials(table, tried)) if "edge" in note]

    assert said({0.1: 0.5, 0.3: 0.3, 1.0: 0.4}) == []
    assert said({0.1: 0.5, 0.3: 0.4, 1.0: 0.3}) == [
        "Learning rates chosen at the edge of their grid: (3,10) CE, gradient descent 1."
    ]
    assert len(said({0.1: 0.3, 0.3: 0.4, 1.0: 0.5})) == 1
    assert said({0.1: 0.5, 1.0: 0.4}) == []  # of two every one is at the edge


def test_stand_ins_are_marked(page, reported):
    text = " ".join("".join(page.text).split())
    assert "scikit-learn's digits, not MNIST" in text
    assert "Stand-in data: not the paper's." in text
    assert "not MNIST" in (reported / "table3-digits.md").read_text()


def test_figures_without_runs_are_said_to_be_missing(tmp_path):
    store = Store(tmp_path / "runs")
    store.save(hand_made.run(Cell("circle", (3, 16), "paper")))
    text = write_report(store, tmp_path / "out").read_text()
    assert len(Page(text).all("img")) == 1  # figure 1 is of samples alone
    for name in ("figure2", "figure3", "figure4"):
        assert f"lysep reproduce {name} makes what it needs" in text
    assert "Stand-in" not in text


def test_a_folder_without_runs_is_refused(tmp_path, capsys):
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert "holds no runs" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_band_is_mean_and_deviation_where_a_run_that_ended_keeps_its_value():
    runs = [hand_made.run(loss=0.0, sweeps=4), hand_made.run(seed=1, loss=0.5, sweeps=2)]
    iterations, means, deviations = band(runs, "cross_entropy")
    assert iterations == [1, 2, 3, 4]
    assert means == pytest.approx([0.75, 0.5, 0.375, 0.25])
    assert deviations == pytest.approx([0.0, 0.0, 0.25 / 2**0.5, 0.5 / 2**0.5])


def test_a_step_of_a_baseline_is_drawn_where_it_was_scored_and_the_end_by_the_score():
    at, losses = curve(hand_made.run(hand_made.DESCENT, loss=0.0, sweeps=4, learning_rate=0.1), "cross_entropy")
    assert at == [1, 2, 3, 4]
    assert losses == pytest.approx([0.5, 0.25, 0.0, 0.0])


def test_digits_are_the_only_stand_in():
    assert list(STAND_INS) == ["digits"]
