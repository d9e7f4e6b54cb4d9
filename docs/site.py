"""The site is docs/, the README as its first page, and whatever else of the repository the pages link to.

Pages are written so that their links lead somewhere in a checkout. Here each is turned into one of the site, where
docs/ lies at the top and README.md is index.md.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File, Files
from pygments.formatters import HtmlFormatter

ROOT = Path(__file__).parent.parent
FRAMES = "\n.highlight pre > code { border: 0; padding: 0; background: none; }\n"  # one frame around code, not two
LINK = re.compile(r"(\]\()([^)#:\s]+)([)#])")


def on_files(files: Files, config: Any) -> Files:
    places = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *(f"docs/{page.src_uri}" for page in files)]
    for place in places:  # grows while it is gone through
        if not place.startswith("docs/"):
            files.append(File.generated(config, uri_of(place), abs_src_path=str(ROOT / place)))
        if place.endswith(".md"):
            places += [target for target in targets(place) if target not in places]
    files.append(File.generated(config, "highlight.css", content=HtmlFormatter().get_style_defs(".highlight") + FRAMES))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    place, uri = in_repository(page.file.src_uri), page.file.src_uri

    def turned(link: re.Match[str]) -> str:
        target = uri_of(normpath(f"{dirname(place)}/{link[2]}".lstrip("/")))
        return f"{link[1]}{relpath(target, dirname(uri) or '.')}{link[3]}"

    return LINK.sub(turned, markdown)


def targets(place: str) -> Iterator[str]:
    for link in LINK.finditer((ROOT / place).read_text()):
        target = normpath(f"{dirname(place)}/{link[2]}".lstrip("/"))
        if (ROOT / target).is_file():
            yield target


def uri_of(place: str) -> str:
    return "index.md" if place == "README.md" else place.removeprefix("docs/")


def in_repository(uri: str) -> str:
    if uri == "index.md":
        return "README.md"
    return f"docs/{uri}" if (ROOT / "docs" / uri).exists() else uri
