"""What problems there are, and where their data come from: for people to read."""

from __future__ import annotations

from typing import NamedTuple

from lysep.problems.mnist import mnist_is_cached


class Description(NamedTuple):
    name: str
    samples: str
    inputs: str
    classes: int
    origin: str


def catalogue() -> list[Description]:
    mnist_is_here = "in the cache" if mnist_is_cached() else "not fetched yet: lysep data fetch mnist"
    origins = {
        "circle": "drawn from a seed (the paper's Example 1)",
        "interface": "drawn from a seed, labelled by solving the Allen-Cahn equation (the paper's Example 2)",
        "mnist": f"LeCun, Cortes, Burges; files of known MD5 (the paper's Example 3); {mnist_is_here}",
        "digits": "comes with scikit-learn (UCI Optical Recognition of Handwritten Digits); the stand-in for MNIST",
    }
    return [
        Description("circle", "3000 + 1000", "2", 2, origins["circle"]),
        Description("interface", "3000 + 1000", "2", 2, origins["interface"]),
        Description("mnist", "60000 + 10000", "1 × 28 × 28", 10, origins["mnist"]),
        Description("digits", "1348 + 449", "1 × 8 × 8", 10, origins["digits"]),
    ]
