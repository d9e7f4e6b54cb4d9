import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

from lysep.cli import main

settings.register_profile("lysep", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lysep")


@pytest.fixture(autouse=True)
def _one_thread_and_a_known_start():
    torch.set_num_threads(1)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def wine(tmp_path_factory):
    """Training and test tables with gaps and a text column, and the model trained by the command."""
    torch.set_num_threads(1)  # as for every test, but this comes before
    home = tmp_path_factory.mktemp("wine")
    table = load_wine(as_frame=True).frame
    table["target"] = np.array(["red", "white", "rose"])[table["target"]]
    table["cellar"] = np.where(table["alcohol"] > 13.0, "Bonn", "Graz")
    table.loc[::11, "ash"] = np.nan
    train, test = train_test_split(table, test_size=0.3, random_state=0, stratify=table["target"])
    train.to_csv(home / "train.csv", index=False)
    test.to_csv(home / "test.csv", index=False)
    test.to_parquet(home / "test.parquet")
    command = [
        "train",
        home / "train.csv",
        "--target",
        "target",
        "--out",
        home / "model",
        "--hidden",
        "3x10",
        "--quiet",
    ]
    assert main(list(map(str, command))) == 0
    return home
