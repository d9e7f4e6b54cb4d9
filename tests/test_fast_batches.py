"""`method="fast"` in mini-batches: what is kept from one to the next, and what decreases all the same."""

import pytest
import torch

import lysep
from lysep import Fast
from lysep.data import Batch
from lysep.methods import separation
from lysep.problems import circle, fnn
from references import coupled_step, layers_of, local_gains
from small import X, Y, network, plain_scores, point_of, run, same


def test_sweeps_on_new_samples_average_sums_and_judge_the_last_step_by_the_new_ones():
    data = circle(train=1200)
    batches = [Batch(*pair) for pair in zip(data.X_train.split(100), data.y_train.split(100), strict=True)]
    point = point_of(network(), *batches[0][:2])
    layers, memory, means, factors = layers_of(network(), (2,)), Fast().begin(point)[1], {}, set()
    for count, batch in enumerate(batches, 1):
        before = Fast().renew(point, batch)
        X, y = batch.X, batch.y
        rho, deltas = local_gains(layers, before.weights, before.biases, X, y)

        def mean(name, fresh, last, count=count):
            means[name] = means.get(name, 0.0) + (fresh - means.get(name, 0.0)) / min(count, last)
            return means[name]

        for l, (below, delta) in enumerate(zip([X, before.active[1]], deltas, strict=True)):
            v = torch.cat([below, torch.ones(100, 1, dtype=torch.float64)], 1)
            values, vectors = torch.linalg.eigh(mean(f"gains.{l}", delta @ delta.T, 20))
            roots = (values + separation.GAIN_RIDGE * values.mean()).sqrt()
            omega = ((vectors.T @ delta).square() / roots[:, None]).sum(0)
            mean(f"gram.{l}", (v.T * omega) @ v, 20)
            mean(f"moment.{l}", (rho * delta) @ v, 5)

        def effect(memory, before=before, X=X, y=y):
            """What the step in memory does to ρ, to first order."""
            steps = [[memory[f"step.{l}"] for l in range(2)]]
            nothing = [torch.eye(1, dtype=torch.float64)] * 2
            return coupled_step(layers, before.weights, before.biases, X, y, steps, nothing, 1, 1.0)[1][:, 0]

        after, remembered, log = Fast().sweep(before, memory)
        assert after.total < before.total
        for name, value in means.items():
            torch.testing.assert_close(remembered[name][0], value, rtol=1e-8, atol=1e-12 * float(value.abs().max()))
        promised = float(rho.square().sum() - (rho + effect(remembered)).square().sum()) / 100
        assert remembered["expected"] == pytest.approx(promised, rel=1e-6)
        if count > 1:
            kept = float((rho - effect(memory)).square().sum() - rho.square().sum()) / 100 / memory["expected"]
            factor = 0.75 if kept > 0.1 else 1.5 if kept < -0.1 else 1.0
            damping = min(max(factor * memory["damping"], 1.0), 10.0)
            assert remembered["damping"] == pytest.approx(damping * 4.0**log.rejected_updates)
            factors.add(factor)
        point, memory = after, remembered
    assert len(factors) > 1


def test_memory_survives_new_samples():
    point, memory = run(point_of(network(), X[:20], Y[:20]), 2)[-1]
    renewed = Fast().renew(point, Batch(X[20:], Y[20:]))
    assert same(renewed.weights, point.weights)
    after, remembered, _ = Fast().sweep(renewed, memory)
    assert after.total < renewed.total
    assert remembered["batches"] == 2.0
    forgetful, _, _ = Fast().sweep(renewed, {"damping": memory["damping"]})
    assert not same(after.weights, forgetful.weights)


def test_averages_wait_while_samples_stay_and_damping_does_not_come_down_with_them():
    batches = [Batch(X[:20], Y[:20]), Batch(X[20:], Y[20:])]
    point, memory = point_of(network(), *batches[0][:2]), Fast(start="given").begin(point_of(network(), X, Y))[1]
    for count in range(1, 5):
        point = Fast().renew(point, batches[count % 2])
        point, memory, _ = Fast().sweep(point, memory)
        assert memory["batches"] == count
        assert memory["damping"] >= 1.0
        averages = {name: value for name, value in memory.items() if name.startswith(("gains.", "gram.", "moment."))}
        assert len(averages) == 3 * 2
        for _ in range(3):
            point, memory, _ = Fast().sweep(point, memory)
            # The first batch may be all there is: nothing is kept for others.
            assert all(memory.get(name) is (value if count > 1 else None) for name, value in averages.items())
        assert memory["batches"] == count
    assert memory["damping"] < 1.0


def test_on_new_samples_too_a_step_is_taken_only_if_their_loss_falls():
    """Five samples at a time, of which two in five are mislabelled: what was learned is often wrong for the next."""
    data = circle(train=300)
    flipped = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.4
    y = torch.where(flipped, 1 - data.y_train, data.y_train)
    rejected, memory, point = 0, {"damping": 1.0}, point_of(fnn(3, 10), data.X_train[:5], y[:5])
    for batch in map(Batch, data.X_train.split(5), y.split(5)):
        before = Fast().renew(point, batch)
        point, memory, log = Fast().sweep(before, memory)
        assert point.total < before.total
        rejected += log.rejected_updates
    assert rejected > 0


def test_a_batch_stays_for_one_sweep_unless_it_is_said_otherwise():
    assert lysep.fit(network(), X, Y, sweeps=6, batch_size=10).history["batch"] == [1, 2, 3, 4, 5, 6]
    assert lysep.fit(network(), X, Y, method="paper", sweeps=6, batch_size=10).history["batch"] == [1] * 6


def test_mini_batches_learn():
    data = circle(train=1000)
    model = fnn(3, 10, start="pytorch")
    lysep.fit(model, data.X_train, data.y_train, sweeps=60, batch_size=250, refresh_every=1)
    assert plain_scores(model, data.X_test, data.y_test)[1] > 0.95
