"""`lysep evaluate`, `predict`, `inspect` and `export`: what one does with a saved model."""

from __future__ import annotations

import argparse
import sys


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "evaluate",
        help="compare a model's predictions with known classes",
        description="Accuracy, cross-entropy, precision and recall by class, and the confusion matrix.",
    )
    _add_model(command)
    command.add_argument("data", metavar="DATA", help="a table with the columns trained on, and the target")
    command.add_argument("--target", metavar="COLUMN", help="the column of the classes, if not that trained on")
    command.add_argument("--picture", metavar="FILE", help="draw the confusion matrix: .png, .svg or .pdf")
    _add_drop(command)
    command.set_defaults(run=_evaluate)

    command = commands.add_parser(
        "predict",
        help="predict classes and probabilities",
        description="Write a CSV table with a row for every row of DATA: the predicted class, and a probability for "
        "each class.",
    )
    _add_model(command)
    command.add_argument("data", metavar="DATA", help="a table with the columns trained on; a target is not looked at")
    command.add_argument("-o", "--out", metavar="FILE", help="the CSV file to write (default: to the terminal)")
    _add_drop(command)
    command.set_defaults(run=_predict)

    command = commands.add_parser(
        "inspect",
        help="show layers, gaps, the bound, and how a model was trained",
        description="Show layers, gaps, the bound, and how a model was trained.",
    )
    _add_model(command)
    command.set_defaults(run=_inspect)

    command = commands.add_parser(
        "export",
        help="write a model as an ONNX file",
        description="Write a model as an ONNX file that gives the same probabilities, up to the rounding of float32. "
        "What a table of numbers goes through first is part of the file.",
    )
    _add_model(command)
    command.add_argument("out", metavar="FILE", help="the ONNX file to write")
    command.set_defaults(run=_export)


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("model", metavar="MODEL", help="a directory that `lysep train` or `classifier.save` wrote")


def _add_drop(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--drop", action="append", default=[], metavar="COLUMN", help="leave out a column of DATA; may be repeated"
    )


def _evaluate(arguments: argparse.Namespace) -> None:
    from lysep import saving, tables
    from lysep.evaluation import evaluate

    classifier = saving.load(arguments.model)
    evaluation = evaluate(classifier, *tables.samples_for(classifier, arguments.data, arguments.drop, arguments.target))
    if arguments.picture:
        evaluation.picture(arguments.picture)
    print(evaluation)


def _predict(arguments: argparse.Namespace) -> None:
    from lysep import saving, tables

    classifier = saving.load(arguments.model)
    table = tables.predictions(classifier, tables.features_for(classifier, arguments.data, arguments.drop))
    if arguments.out:
        tables.write_csv(table, arguments.out)
    else:
        table.to_csv(sys.stdout, index=False)


def _inspect(arguments: argparse.Namespace) -> None:
    from lysep import inspection, saving

    print(inspection.report(saving.load(arguments.model)))


def _export(arguments: argparse.Namespace) -> None:
    from lysep import saving
    from lysep.export import export_onnx

    print(export_onnx(saving.load(arguments.model), arguments.out))
