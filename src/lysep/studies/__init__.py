"""Experiment specification → runs → tables, figures, report."""
