"""Where fetched data are kept, and how a file gets there whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path:
    """$LYSEP_DATA; else `lysep` in $XDG_CACHE_HOME; else ~/.cache/lysep. It need not exist yet."""
    named = os.environ.get("LYSEP_DATA")
    if named:
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lysep"


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the target, then rename: a reader, or a run that is killed, never sees half a file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(content)
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(f"cannot write {path} ({error}). Name another folder for data: LYSEP_DATA=FOLDER.") from error
    finally:
        temporary.unlink(missing_ok=True)
