import pytest
import torch
from hypothesis import HealthCheck, settings

settings.register_profile("lysep", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lysep")


@pytest.fixture(autouse=True)
def _one_thread_and_a_known_start():
    torch.set_num_threads(1)
    torch.manual_seed(0)
