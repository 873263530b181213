"""Profiles for property tests: the same examples on every run of the suite, new ones in `make fuzz`."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

SUITE = "suite"
FUZZ = "fuzz"
EXAMPLES = 50
FUZZ_FACTOR = 25
# Fixtures are shared between a function's examples on purpose, and a busy machine generates examples slowly.
EXPECTED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)


def register_profiles() -> None:
    """Register both profiles, and load the suite's; `--hypothesis-profile=fuzz` replaces it."""
    settings.register_profile(
        SUITE, max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=EXPECTED
    )
    settings.register_profile(
        FUZZ,
        max_examples=EXAMPLES * FUZZ_FACTOR,
        deadline=None,
        derandomize=False,
        database=None,
        print_blob=True,
        suppress_health_check=EXPECTED,
    )
    settings.load_profile(SUITE)
    # Hypothesis puts constants of the loaded modules into its examples. Which modules are loaded depends on the tests
    # that ran before in the same process.
    providers._get_local_constants = lambda: providers._local_constants


def is_fuzzing() -> bool:
    """Whether new examples are generated."""
    return not settings.default.derandomize


def examples(number: int) -> settings:
    """Generate this many examples in the suite, and more when fuzzing."""
    return settings(max_examples=number * (FUZZ_FACTOR if is_fuzzing() else 1))
