"""`lysep data`: the problems, and the data that have to be fetched."""

from __future__ import annotations

import argparse

from lysep.problems.cache import data_folder
from lysep.problems.catalogue import catalogue
from lysep.problems.mnist import fetch_mnist


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    actions = commands.add_parser("data", help="list the problems; fetch MNIST").add_subparsers(
        title="actions", metavar="ACTION", required=True
    )
    actions.add_parser("list", help="the problems and where their data come from").set_defaults(run=_list)
    fetch = actions.add_parser("fetch", help="put data into the cache, checked against their MD5 sums")
    fetch.add_argument("name", choices=["mnist"])
    fetch.add_argument("--folder", help="copy from here: the four raw files, gzipped or not")
    fetch.set_defaults(run=_fetch)
    actions.add_parser("path", help="where fetched data are kept").set_defaults(run=_path)


def _list(arguments: argparse.Namespace) -> None:
    for p in catalogue():
        print(f"{p.name}: {p.samples} samples of {p.inputs}, {p.classes} classes; {p.origin}")


def _fetch(arguments: argparse.Namespace) -> None:
    print(f"MNIST is in {fetch_mnist(arguments.folder)}: four files, their MD5 sums as they should be")


def _path(arguments: argparse.Namespace) -> None:
    print(data_folder())
