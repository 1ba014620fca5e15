"""Settings of the whole test session."""

from hypothesis import settings

# No deadlines: a time limit in a test fails on a busy machine, and timing is for benchmarks/.
settings.register_profile("dev", deadline=None)
settings.register_profile("fuzz", deadline=None, max_examples=10_000)

# On a CI machine hypothesis has chosen its own `ci` profile by now; --hypothesis-profile, which
# is read later, goes before both.
if settings.get_current_profile_name() == "default":
    settings.load_profile("dev")
