"""`lysep train`: from a table in a file to a saved model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lysep import methods

DEEPEST = 10_000

_EPILOG = """\
Numbers are standardized and missing ones replaced by the median; texts become one indicator a value. Dates, and texts
with too many different values (names, comments), are refused: --drop them. What was learnt about the columns is part of
the model.

examples:
  lysep train iris.csv --target species --out model/
  lysep train iris.csv --target species --hidden 20x10 --early-stopping --test held_out.csv --out model/
  lysep train big.parquet --target label --batch-size 500 --max-iter 5000 --checkpoint run/ --out model/
"""


def hidden_layers(text: str) -> tuple[int, ...]:
    """The widths of the hidden layers from "20x10" (depth and width) or "30,20,10"."""
    try:
        if "x" in text:
            depth, width = (int(number) for number in text.split("x"))
            if not 2 <= depth <= DEEPEST or width < 1:
                raise ValueError
            return (width,) * (depth - 1)
        widths = tuple(int(number) for number in text.split(","))
        if min(widths) < 1:
            raise ValueError
        return widths
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither DEPTHxWIDTH, such as 20x10 (depth 2 to {DEEPEST}), nor widths, such as 30,20,10"
        ) from None


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "train",
        help="train a classifier on a table",
        description="Train a classifier on a table in a CSV, TSV, Parquet or NPZ file, and save it.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command.add_argument("data", metavar="DATA", help="the table: .csv, .tsv, .parquet or .npz")
    command.add_argument("--target", required=True, metavar="COLUMN", help="the column that holds the classes")
    command.add_argument("--out", required=True, metavar="DIR", help="where to save the model, a directory")
    command.add_argument("--test", metavar="DATA", help="evaluate the model on this table when it is trained")
    command.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="leave out a column; may be repeated"
    )
    _add_network(command)
    _add_training(command)
    command.set_defaults(run=_run)


def _add_network(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("network")
    group.add_argument(
        "--hidden",
        dest="hidden_layer_sizes",
        type=hidden_layers,
        metavar="SIZES",
        help="hidden layers: their widths, such as 30,20,10; or depth x width as in the paper, where 20x10 is a "
        "network of depth 20: 19 hidden layers of width 10, and the head (default 30)",
    )
    group.add_argument(
        "--activation", metavar="NAME", help="tanh, relu, logistic, leaky_relu, elu, silu, gelu, ... (default tanh)"
    )


def _add_training(command: argparse.ArgumentParser) -> None:
    group = command.add_argument_group("training")
    group.add_argument("--method", choices=methods.names(), help="the method of training (default fast)")
    group.add_argument("--max-iter", type=int, metavar="N", help="sweeps at most (default 200)")
    group.add_argument("--batch-size", type=int, metavar="N", help="train on random subsets of this size (default all)")
    group.add_argument("--refresh-every", type=int, metavar="N", help="sweeps on one subset (fast: 1, paper: 200)")
    group.add_argument(
        "--tol",
        type=float,
        metavar="X",
        help="the least improvement of the cross-entropy that counts (default 0.001)",
    )
    group.add_argument(
        "--early-stopping",
        action="store_true",
        default=None,
        help="hold out samples, end when they are predicted no better, and keep the best model",
    )
    group.add_argument("--validation-fraction", type=float, metavar="X", help="how many to hold out (default 0.1)")
    group.add_argument(
        "--n-iter-no-change", type=int, metavar="N", help="sweeps without improvement before it ends (default 10)"
    )
    group.add_argument("--class-weight", choices=["balanced"], help="make all classes count alike")
    group.add_argument("--time-limit", type=float, metavar="SECONDS", help="end after this time")
    group.add_argument("--seed", dest="random_state", type=int, default=0, metavar="N", help="(default 0)")
    group.add_argument(
        "--checkpoint",
        metavar="DIR",
        help="save the run there while it goes on; the same command, given again after whatever interrupted it, "
        "continues it exactly",
    )
    group.add_argument("--quiet", action="store_true", help="no progress bar (there is none without a terminal anyway)")


def _run(arguments: argparse.Namespace) -> None:
    from lysep import saving, tables
    from lysep.estimator import LySepClassifier
    from lysep.evaluation import evaluate

    target = Path(arguments.out).resolve()
    saving.refuse_to_replace(target)
    X, y = tables.read_samples(arguments.data, arguments.target, arguments.drop)
    classifier = LySepClassifier(preprocessing="table", verbose=not arguments.quiet, **_parameters(arguments))
    classifier.fit(X, y, time_limit=arguments.time_limit, checkpoint=arguments.checkpoint)
    classifier.save(target)
    last = classifier.separated_loss_
    print(
        f"{classifier.n_iter_} sweeps: cross-entropy {last.cross_entropy:.4g}, accuracy {last.accuracy:.2%}, "
        f"bound {last.bound:.4g}"
    )
    print(f"ended: {classifier.status_.message}", *classifier.remarks_, f"saved to {arguments.out}", sep="\n")
    if arguments.test:
        samples, classes = tables.samples_for(classifier, arguments.test, arguments.drop)
        print(f"\n{arguments.test}:\n{evaluate(classifier, samples, classes)}")


def _parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """Those that were given; the classifier knows what the others are."""
    from lysep.estimator import LySepClassifier

    known = LySepClassifier().get_params(deep=False)
    return {name: value for name, value in vars(arguments).items() if name in known and value is not None}
