"""`lysep bench`: layer separation and PyTorch's optimizers on the same networks, data, scorer and clock."""
