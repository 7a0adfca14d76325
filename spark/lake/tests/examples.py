"""How many examples a property is tried with."""

from hypothesis import HealthCheck, settings


def quick(examples: int) -> settings:
    """The same examples every time."""
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
