"""Files and directories that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """A path to write to; what was written takes the place of `path` at the end, if there was no error."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.parent)
    os.close(descriptor)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o666 & ~_umask())
        _flush(draft)
        draft.replace(path)
        _flush(path.parent)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def new_directory(path: Path, refuse: Callable[[Path], None]) -> Iterator[Path]:
    """A directory to fill; it takes the place of `path` at the end, if there was no error.

    `refuse` is asked once more before a directory that is there already gives way.
    """
    draft = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        yield draft
        draft.chmod(0o777 & ~_umask())
        for file in draft.iterdir():
            _flush(file)
        _flush(draft)
        refuse(path)
        _replace(draft, path)
        _flush(path.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _replace(draft: Path, path: Path) -> None:
    if not path.exists():
        draft.rename(path)
        return
    attic = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    old = attic / path.name
    try:
        path.rename(old)  # a directory that holds files cannot be renamed over
        draft.rename(path)
    except OSError:
        if old.exists():
            old.rename(path)
        attic.rmdir()
        raise
    shutil.rmtree(attic)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _flush(path: Path) -> None:
    """Through to the disk: a rename may otherwise outlive the contents it promises."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
