"""The progress bar (progress.py), on a terminal and without one."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import lysep
from small import X, Y, network

RUN = """
import sys, time
sys.path.insert(0, "tests")
import lysep
from small import X, Y, network

def wait(progress):
    time.sleep({pause})
    return progress.sweep == {stop}

lysep.fit(network(), X, Y, {options}, callbacks=[wait])
"""


def on_a_terminal(options, pause=0.0, stop=None):
    """What a terminal of 120 columns shows of a run, one line for every time the bar is drawn."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    code = RUN.format(options=options, pause=pause, stop=stop)
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    shown = b""
    while True:
        try:
            piece = os.read(master, 4096)
        except OSError:  # Linux: the other end has closed
            break
        if not piece:
            break
        shown += piece
    os.close(master)
    assert process.communicate()[0] == b""
    assert process.returncode == 0, shown.decode()
    return [line for line in re.split(r"[\r\n]+", shown.decode()) if line.strip()]


def test_a_terminal_shows_loss_accuracy_and_bound():
    lines = on_a_terminal("sweeps=12, progress=True", pause=0.05)
    assert re.search(r"12/12 \[00:0\d<00:00, .*loss=0\.\d+, accuracy=\d+\.\d+%, bound=\d", lines[-1])


def seconds_left(options):
    """What the bar says in the first of 3000 sweeps of at least 0.1 s: five minutes, if nothing else ends them."""
    lines = on_a_terminal(f"sweeps=3000, progress=True, {options}", pause=0.1, stop=12)
    known = [re.search(r"<(\d+):(\d+),", line) for line in lines]
    return [60 * int(left[1]) + int(left[2]) for left in known if left]


def test_the_time_left_is_that_to_the_end_or_to_the_time_limit():
    to_the_end, to_the_limit = seconds_left("time_limit=None"), seconds_left("time_limit=100")
    assert len(to_the_end) > 3
    assert len(to_the_limit) > 3
    assert to_the_end[-1] > 270
    assert to_the_limit == sorted(to_the_limit, reverse=True)
    assert all(90 < left <= 100 for left in to_the_limit)


def test_without_a_terminal_nothing_is_shown(capfd):
    lysep.fit(network(), X, Y, sweeps=5, progress=True)
    assert capfd.readouterr() == ("", "")


def test_a_terminal_stays_quiet_unless_asked():
    assert on_a_terminal("sweeps=5") == []
