from roq.hcm.crash_history import CrashHistory, CrashLimits

LIMITS = CrashLimits(most=6, window_seconds=60.0, first_seconds=0.5, longest_seconds=1.5)


def test_the_first_restart_is_at_once_and_later_ones_wait_longer_up_to_a_bound() -> None:
    history = CrashHistory(LIMITS)
    assert [history.crashed(float(second)) for second in range(5)] == [0.0, 0.5, 1.0, 1.5, 1.5]


def test_so_many_crashes_within_the_window_are_too_many() -> None:
    history = CrashHistory(LIMITS)
    assert [history.crashed(float(second)) for second in range(6)][-1] is None
    assert history.total == 6


def test_crashes_before_the_window_do_not_count() -> None:
    history = CrashHistory(LIMITS)
    for second in range(5):
        history.crashed(float(second))
    assert history.crashed(100.0) == 0.0
    assert history.total == 6
