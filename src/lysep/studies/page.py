"""The page of a report: HTML that needs nothing beside it, no network and no script."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from lysep.studies.paper import METHODS, Cell, Table
from lysep.studies.runs import Run
from lysep.studies.tables import Entry, Row, entries, heads
from lysep.studies.tuning import Trials

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --soft: #666; --line: #ddd; --paper: #fff; --shade: #f6f6f4;
  --good: #00694b; --bad: #a33d00; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e6e6; --soft: #a0a0a0; --line: #3a3a3a; --paper: #161616;
  --shade: #202020; --good: #57c9a0; --bad: #f0935a; } }
body { margin: 0 auto; max-width: 92rem; padding: 1.5rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; } h2 { font-size: 1.2rem; margin: 3rem 0 .75rem; }
a { color: inherit; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .78rem; font-variant-numeric: tabular-nums; }
th, td { padding: .22rem .4rem; text-align: right; white-space: nowrap; }
th { font-weight: 600; color: var(--soft); } thead tr:last-child th { border-bottom: 1px solid var(--ink); }
th.group { text-align: center; border-bottom: 1px solid var(--line); }
th.text, td.text { text-align: left; } tr.first td { border-top: 1px solid var(--line); }
tr.ours td { background: var(--shade); } .good { color: var(--good); } .bad { color: var(--bad); font-weight: 600; }
figure { margin: 0 0 1rem; } figure img { max-width: 100%; height: auto; background: #fff; padding: .5rem;
  box-sizing: border-box; border-radius: 4px; }
figcaption, .notes { color: var(--soft); max-width: 66rem; } .notes { padding-left: 1.2rem; font-size: .88rem; }
.absent { border: 1px dashed var(--line); padding: .75rem 1rem; } .warn { color: var(--bad); font-weight: 600; }
details { margin: .75rem 0; } summary { cursor: pointer; } td.chosen { font-weight: 700; }
"""


def whole(glance: Iterable[tuple[str, str, str]], sections: Iterable[str]) -> str:
    """All of it; `glance` has a section, its title, and what there is to say of it in a line."""
    lines = "".join(f'<li><a href="#{at}">{escape(title)}</a>: {escape(said)}</li>' for at, title, said in glance)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>Layer separation: the paper's experiments, run again</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>Layer separation: the paper's experiments, run again</h1>
<p>Section 5 of Y. Liu, M. K. Ng and Y. Gu, <i>A Layer Separation Optimization Framework for Cross-Entropy Training in
Deep Learning</i>, beside what <code>lysep reproduce</code> reached. Every figure is the mean ± one standard deviation
over seeds. Drawn from run files by <code>lysep report</code>.</p>
<ul>{lines}</ul>
{"".join(sections)}
</body>
</html>
"""


def table(table: Table, found: Sequence[Row | Cell], notes: Sequence[str], tried: Sequence[Trials]) -> str:
    warning = '<p class="warn">Stand-in data: not the paper\'s.</p>' if table.stand_in else ""
    body = "".join(_row(table, row, _begins(found, place)) for place, row in enumerate(found))
    said = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<section id="{table.slug}"><h2>{escape(table.title)}</h2>{warning}<div class="wide"><table>{_heads(table)}'
        f'<tbody>{body}</tbody></table></div><ul class="notes">{said}</ul>{_tuning(tried)}</section>\n'
    )


def _begins(found: Sequence[Row | Cell], place: int) -> bool:
    """Whether a row is the first of its network and time slice."""

    def of(row: Row | Cell) -> tuple[object, ...]:
        cell = row.cell if isinstance(row, Row) else row
        return cell.network, cell.time

    return place == 0 or of(found[place]) != of(found[place - 1])


def _heads(table: Table) -> str:
    groups = [(group, list(names)) for group, names in groupby(heads(table), key=lambda head: head.group)]
    upper = "".join(f'<th class="group" colspan="{len(names)}">{escape(group)}</th>' for group, names in groups)
    lower = "".join(f"<th{_side(head.name)}>{escape(head.name)}</th>" for head in heads(table))
    return f"<thead><tr>{upper}</tr><tr>{lower}</tr></thead>"


def _side(name: str) -> str:
    return ' class="text"' if name == "method" or name.startswith(("(", "start")) else ""


def _row(table: Table, row: Row | Cell, begins: bool) -> str:
    method = (row.cell if isinstance(row, Row) else row).method
    classes = " ".join(name for name, holds in (("first", begins), ("ours", method == "paper")) if holds)
    names = [head.name for head in heads(table)]
    found = entries(table, row)
    if not begins:  # the place is said once
        found[: names.index("method")] = [Entry("")] * names.index("method")
    cells = "".join(_entry(entry, name) for entry, name in zip(found, names, strict=True))
    return f'<tr class="{classes}">{cells}</tr>'


def _entry(entry: Entry, name: str) -> str:
    if entry.reached is None:
        return f"<td{_side(name)}>{escape(entry.text)}</td>"
    return f'<td class="{"good" if entry.reached else "bad"}">{escape(entry.text)}</td>'


def _tuning(tried: Sequence[Trials]) -> str:
    if not tried:
        return ""
    return (
        "<details><summary>How starts and learning rates were chosen</summary><p>Mean training loss over the last "
        "quarter of short runs, on samples (where they are drawn) and seeds that are not reported; the lowest is taken."
        f"</p>{''.join(map(_grid, tried))}</details>"
    )


def _grid(grid: Trials) -> str:
    starts = sorted({start for start, _ in grid.losses})
    rates = sorted({rate for _, rate in grid.losses}, key=lambda rate: rate or 0.0)
    top = "".join(f"<th>{'loss' if rate is None else f'{rate:g}'}</th>" for rate in rates)
    body = "".join(
        f'<tr><td class="text">{start}</td>'
        + "".join(
            f"<td{' class=chosen' if (start, rate) == grid.lowest else ''}>{_loss(grid.losses.get((start, rate)))}</td>"
            for rate in rates
        )
        + "</tr>"
        for start in starts
    )
    title = f"({grid.network[0]},{grid.network[1]}) {METHODS[grid.method]}: {grid.sweeps:,} iterations, "
    return (
        f"<p>{escape(title)}{grid.seeds} seed(s)</p><table><thead><tr><th class=text>start</th>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _loss(loss: float | None) -> str:
    if loss is None:
        return "not run"
    return f"{loss:.2e}" if loss < float("inf") else "failed"


def figure(name: str, caption: str, svg: bytes) -> str:
    data = b64encode(svg).decode()
    return (
        f'<section id="{name}"><h2>{_first_words(caption)}</h2><figure><img alt="{escape(caption)}" '
        f'src="data:image/svg+xml;base64,{data}"><figcaption>{escape(caption)}</figcaption></figure></section>\n'
    )


def missing_figure(name: str, caption: str, why: str) -> str:
    return (
        f'<section id="{name}"><h2>{_first_words(caption)}</h2><p class="absent">{escape(caption)}<br>'
        f"<b>{escape(why)}</b></p></section>\n"
    )


def _first_words(caption: str) -> str:
    return escape(caption.split(":")[0])


def failures(runs: Sequence[Run]) -> str:
    """Every run that failed, with its error: none is left out silently."""
    failed = [run for run in runs if not run.ok]
    lines = "".join(
        f"<li>{escape(json.dumps(dict(run.specification)))}: {escape(run.outcome.ended)}</li>" for run in failed
    )
    told = f"{len(failed)} of {len(runs)} runs, those to tune by included."
    more = f"<details><summary>Which, and why</summary><ul>{lines}</ul></details>" if failed else ""
    return f'<section id="failures"><h2>Failed runs</h2><p>{told}</p>{more}</section>\n'


def machines(found: Iterable[tuple[str, int]]) -> str:
    lines = "".join(f"<li>{count} runs: {escape(', '.join(_parts(text)))}</li>" for text, count in found)
    return f'<section id="machines"><h2>Machines</h2><ul>{lines}</ul></section>\n'


def _parts(text: str) -> list[str]:
    return [f"{name} {value}" for name, value in json.loads(text).items()]
