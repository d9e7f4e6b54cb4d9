"""The same run on every device that this machine has: the CPU in a plain checkout, CUDA too where there is one."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import lysep
from lysep.problems import circle, fnn

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def dense():
    modules = [m for _ in range(5) for m in (nn.Linear(6, 6), nn.Tanh())]
    return nn.Sequential(*modules, nn.Linear(6, 3))


def convolutions():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Tanh(),
        nn.AvgPool2d(3, stride=2, padding=1),
        nn.Conv2d(3, 2, 2, padding="same"),
        nn.SiLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(2 * 2 * 2, 5),
        nn.Tanh(),
        nn.Linear(5, 3),
    )


def problem(kind, dtype, device):
    torch.manual_seed(1)
    model = (dense() if kind == "dense" else convolutions()).to(dtype)
    X = torch.randn(120, *((6,) if kind == "dense" else (1, 8, 8)), dtype=dtype)
    y = X.flatten(1)[:, :3].argmax(1)
    return model.to(device), X.to(device), y.to(device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_a_run_descends_keeps_its_bound_and_repeats_bit_for_bit(kind, dtype, device):
    runs = []
    for _ in range(2):
        model, X, y = problem(kind, dtype, device)
        result = lysep.fit(model, X, y, sweeps=12, batch_size=80, refresh_every=6)
        runs.append((result, [p.detach().clone() for p in model.parameters()]))
    history = runs[0][0].history
    for batch in (1, 2):
        S = [s for s, b in zip(history["objective"], history["batch"], strict=True) if b == batch]
        assert len(S) == 6
        assert sorted(S, reverse=True) == S
    assert all(c <= b for c, b in zip(history["cross_entropy"], history["bound"], strict=True))
    assert all(p.device.type == device and p.dtype == dtype for p in runs[0][1])
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))
    assert runs[0][0].history["objective"] == runs[1][0].history["objective"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", ["paper", "fast"])
@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_a_run_goes_on_from_its_checkpoint_bit_for_bit(kind, method, device, tmp_path):
    def run(sweeps, **options):
        model, X, y = problem(kind, torch.float64, device)
        result = lysep.fit(model, X, y, method=method, sweeps=sweeps, batch_size=80, refresh_every=6, **options)
        return result.history["objective"], list(model.parameters())

    for sweeps in (1, 5, 6, 12):
        objective, parameters = run(sweeps, checkpoint=tmp_path)
    expected, wanted = run(12)
    assert objective == expected
    assert all(torch.equal(a, b) for a, b in zip(parameters, wanted, strict=True))
    assert all(p.device.type == device for p in parameters)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["dense", "convolutions"])
def test_devices_agree_in_float64(kind, device):
    here, X, y = problem(kind, torch.float64, "cpu")
    there, *_ = problem(kind, torch.float64, device)
    a = lysep.fit(here, X, y, sweeps=5).history["objective"]
    b = lysep.fit(there, X, y, sweeps=5).history["objective"]  # data on the CPU follow the model
    assert b == pytest.approx(a, rel=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_gaps_are_computed_in_full_precision(device):
    """Convolutions in TF32, PyTorch's default on recent GPUs, would leave gaps of 1e-3 that no weight can close."""
    model, X, y = problem("convolutions", torch.float32, device)
    state = lysep.separate(model, X, y)
    exact = problem("convolutions", torch.float64, "cpu")[0].double()
    with torch.no_grad():
        expected = exact[0](X.double().cpu())
    torch.testing.assert_close(state.aux[0].double().cpu(), expected, rtol=1e-5, atol=1e-5)
    loss = lysep.separated_loss(state).cross_entropy
    assert loss == pytest.approx(float(F.cross_entropy(model(X), y).detach()), rel=1e-2)


@pytest.mark.parametrize("device", DEVICES)
def test_many_samples_of_which_some_are_drawn_repeat_bit_for_bit_and_are_those_of_the_cpu(device):
    data = circle(train=3000)
    runs = []
    for device_ in (device, device, "cpu"):
        model = fnn(3, 10, start="pytorch").to(device_)
        result = lysep.fit(model, data.X_train.to(device_), data.y_train.to(device_), sweeps=4)
        runs.append((result.history["objective"], [p.detach().cpu() for p in model.parameters()]))
    assert runs[0][0] == runs[1][0]
    assert all(torch.equal(a, b) for a, b in zip(runs[0][1], runs[1][1], strict=True))
    assert runs[0][0] == pytest.approx(runs[2][0], rel=1e-6)
