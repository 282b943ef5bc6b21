"""What holds for all tests: property tests are repeatable, and a busy machine fails none.

`ROQ_EXPLORE=1 pytest tests/property` looks where no run before has looked.
"""

import os

from hypothesis import HealthCheck, settings

# Neither how long an example takes nor how long it takes to find one says anything about RoQ.
settings.register_profile(
    "roq",
    derandomize="ROQ_EXPLORE" not in os.environ,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("roq")
