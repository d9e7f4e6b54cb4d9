"""The file of a checkpoint: what it holds, what is refused, and what can go wrong while it is written."""

import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import nn

import lysep
from lysep import CheckpointError, atomic
from lysep.checkpoint import FILE, pack, unpack
from small import Recorder, X, Y, bits, network, outcome, same, values

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")


# -- files that are not whole, or not ours -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A directory with the checkpoint of four of nine sweeps."""
    directory = tmp_path_factory.mktemp("good")
    lysep.fit(network(), X, Y, sweeps=4, checkpoint=directory)
    return directory


def refused(directory, content, message):
    directory.mkdir(exist_ok=True)
    (directory / FILE).write_bytes(content)
    model = network()
    with pytest.raises(CheckpointError, match=message) as caught:
        lysep.fit(model, X, Y, sweeps=9, checkpoint=directory)
    assert str(directory / FILE) in str(caught.value)
    assert same(values(model), values(network()))
    assert (directory / FILE).read_bytes() == content


def test_a_truncated_file_is_refused(good, tmp_path):
    content = (good / FILE).read_bytes()
    lengths = {0, 1, 7, 8, 9, 100, len(content) // 2, len(content) - 1}
    lengths |= set(random.Random(0).sample(range(len(content)), 40))
    for length in lengths:
        refused(tmp_path / "run", content[:length], "is damaged, or no checkpoint of lysep.*delete it to begin anew")


def test_a_file_with_a_changed_byte_is_refused(good, tmp_path):
    content, chance = (good / FILE).read_bytes(), random.Random(1)
    for place in [*range(12), *chance.sample(range(len(content)), 100)]:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        refused(tmp_path / "run", bytes(changed), "damaged|no checkpoint of lysep|has format")


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (None, "is no checkpoint of lysep"),
        ({"format": "pt"}, "is no checkpoint of lysep"),
        ({"format": "lysep checkpoint", "version": "2"}, "has format 2, but this version of lysep reads format 1"),
        ({"format": "lysep checkpoint", "version": "1"}, "do not match its seal"),
    ],
)
def test_a_file_of_another_kind_is_refused(tmp_path, metadata, message):
    save_file({"weight": torch.zeros(3), "half": torch.zeros(3).bfloat16()}, tmp_path / "other", metadata)
    refused(tmp_path / "run", (tmp_path / "other").read_bytes(), message)


def test_a_place_that_is_no_directory_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    model = network()
    for place in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(OSError, match="is no usable directory"):
            lysep.fit(model, X, Y, sweeps=2, checkpoint=place)
    assert same(values(model), values(network()))
    assert (tmp_path / "file").read_text() == "mine"


def test_a_path_that_is_none_is_refused():
    with pytest.raises(ValueError, match="checkpoint=5 must be the path of a directory"):
        lysep.fit(network(), X, Y, sweeps=2, checkpoint=5)


# -- what a file holds -------------------------------------------------------------------------------------------------


def numbers(count):
    return torch.arange(count, dtype=torch.float64)


@pytest.mark.parametrize(
    "tensor",
    [
        numbers(12).reshape(3, 4),
        numbers(12).reshape(3, 4).T,
        numbers(24).reshape(2, 3, 4).permute(2, 0, 1),
        numbers(24).reshape(4, 6)[1:3, ::2],
        numbers(5).as_strided((5, 1), (1, 5)),
        numbers(5).as_strided((5, 1), (1, 1)),
        numbers(3).expand(4, 3),
        torch.tensor(2.5),
        torch.empty(0, 3),
        torch.tensor([math.nan, math.inf, -math.inf, -0.0, 5e-324]),
        torch.tensor([True, False]),
        torch.arange(3),
        torch.rand(3, generator=torch.Generator().manual_seed(0)),
        torch.Generator().manual_seed(3).get_state(),
        torch.zeros(2, requires_grad=True),
    ],
    ids=str,
)
def test_a_tensor_comes_back_as_it_lay_in_memory(tensor):
    tensors = {}
    packed = pack({"x": [tensor, 1]}, tensors, "the test")
    (found, one) = unpack(packed, tensors, CPU)["x"]
    assert one == 1
    assert (found.dtype, found.shape, found.stride()) == (tensor.dtype, tensor.shape, tensor.stride())
    assert not found.requires_grad
    assert bits([found]) == bits([tensor])


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner)))
@example(math.nan)
@example(0.1 + 0.2)
def test_plain_values_come_back_as_they_were(value):
    import json

    found = unpack(json.loads(json.dumps(pack(value, {}, "the test"))), {}, CPU)
    assert repr(found) == repr(value)


# -- what can go wrong while it is written -----------------------------------------------------------------------------

STEPS = ("mkstemp", "write", "chmod", "flush of the file", "rename", "flush of the directory")


def fail_at(monkeypatch, step, action):
    """Let one step of the writing fail, from now on."""

    def instead(*arguments, **options):
        action()

    def flush(path):
        if step == ("flush of the directory" if path.is_dir() else "flush of the file"):
            action()
        return real_flush(path)

    real_flush = atomic._flush
    if step == "mkstemp":
        monkeypatch.setattr(atomic.tempfile, "mkstemp", instead)
    elif step == "write":

        def half(path, data):
            with path.open("wb") as file:
                file.write(data[: len(data) // 2])
            action()

        monkeypatch.setattr(Path, "write_bytes", half)
    elif step == "chmod":
        monkeypatch.setattr(Path, "chmod", instead)
    elif step == "rename":
        monkeypatch.setattr(Path, "replace", instead)
    else:
        monkeypatch.setattr(atomic, "_flush", flush)


def no_space():
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("sweep", [0, 4])
@pytest.mark.parametrize("step", STEPS)
def test_a_full_disk_is_told_and_the_last_good_checkpoint_stays(tmp_path, monkeypatch, step, sweep):
    model = network()
    with monkeypatch.context() as patched:
        if sweep == 0:
            fail_at(patched, step, no_space)
        callbacks = [lambda progress: fail_at(patched, step, no_space) if progress.sweep == sweep else None]
        with pytest.raises(OSError, match=r"could not be written: No space left on device\..*Make room") as caught:
            lysep.fit(model, X, Y, sweeps=9, callbacks=callbacks, checkpoint=tmp_path, checkpoint_every=0.0)
    assert caught.value.errno == 28
    assert same(values(model), values(network()))
    assert [name for name in os.listdir(tmp_path) if name != FILE] == []
    seen = Recorder()
    result = lysep.fit(network(), X, Y, sweeps=9, callbacks=[seen], checkpoint=tmp_path)
    # Once renamed the file is the new one, even if nobody can promise that it would outlive the machine.
    assert seen.seen[0].sweep == max(1, sweep + (step == "flush of the directory"))
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, sweeps=9))


def test_a_disk_that_is_really_full(tmp_path):
    """No file may grow beyond a limit that the first checkpoints keep and a later one does not."""
    code = f"""
import resource, signal, sys
sys.path.insert(0, "tests")
import lysep
from small import X, Y, network
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (14000, 14000))
lysep.fit(network(), X, Y, method="paper", sweeps=400, checkpoint={str(tmp_path)!r}, checkpoint_every=0.0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1
    assert "could not be written: File too large" in done.stderr.splitlines()[-1]
    seen = Recorder()
    result = lysep.fit(network(), X, Y, method="paper", sweeps=400, callbacks=[seen], checkpoint=tmp_path)
    assert 1 < seen.seen[0].sweep < 400
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, method="paper", sweeps=400))


@pytest.mark.parametrize("step", STEPS)
def test_kill_9_at_every_step_of_the_writing(tmp_path, monkeypatch, step):
    pid = os.fork()
    if pid == 0:

        def die(progress):
            if progress.sweep == 4:
                fail_at(monkeypatch, step, lambda: os.kill(os.getpid(), signal.SIGKILL))

        try:
            lysep.fit(network(), X, Y, sweeps=9, callbacks=[die], checkpoint=tmp_path, checkpoint_every=0.0)
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    left = [name for name in os.listdir(tmp_path) if name != FILE]
    assert bool(left) == (step in ("write", "chmod", "flush of the file", "rename"))
    result = lysep.fit(network(), X, Y, sweeps=9, checkpoint=tmp_path)
    assert os.listdir(tmp_path) == [FILE]
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, sweeps=9))


def test_a_checkpoint_may_be_copied_and_both_go_on(tmp_path, good):
    shutil.copytree(good, tmp_path / "copy")
    result = lysep.fit(network(), X, Y, sweeps=9, checkpoint=tmp_path / "copy")
    assert outcome(result) == outcome(lysep.fit(network(), X, Y, sweeps=9))


# -- how much is written, and when -------------------------------------------------------------------------------------


def writings(monkeypatch):
    times, flush = [], lysep.checkpoint.Checkpoint.flush

    def counted(self):
        times.extend([time.perf_counter()] if self._marked is not None else [])
        flush(self)

    monkeypatch.setattr(lysep.checkpoint.Checkpoint, "flush", counted)
    return times


def test_it_is_written_at_the_start_and_at_the_end_and_not_too_often_between(tmp_path, monkeypatch):
    times = writings(monkeypatch)
    lysep.fit(network(), X, Y, sweeps=30, checkpoint=tmp_path / "a")
    assert len(times) == 2
    times.clear()
    pause = [lambda progress: time.sleep(0.01)]
    lysep.fit(network(), X, Y, sweeps=40, callbacks=pause, checkpoint=tmp_path / "b", checkpoint_every=0.1)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert len(times) >= 4
    assert all(gap >= 0.1 for gap in gaps[:-1])


def test_the_data_are_not_in_it(tmp_path):
    samples = 3000
    wide = torch.rand(samples, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = (wide[:, 0] > 0.5).long()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    lysep.fit(model, wide, y, sweeps=3, checkpoint=tmp_path)
    aux = samples * 3 * 8
    assert aux < (tmp_path / FILE).stat().st_size < 1.2 * aux + 10_000 < wide.numel()


def test_nothing_is_written_where_nothing_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lysep.fit(network(), X, Y, sweeps=3)
    assert os.listdir(tmp_path) == []
