import logging

import pytest

from roq.runtime import exits


def test_the_exit_code_of_what_ran_is_given_on() -> None:
    assert exits.logged(lambda: exits.CONFIG) == 78


def test_an_error_that_nobody_named_is_logged_with_its_traceback_and_gives_70(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crash() -> int:
        return 1 // 0

    with caplog.at_level(logging.ERROR):
        assert exits.logged(crash) == exits.CRASHED
    assert "ZeroDivisionError" in caplog.text


def test_an_interrupt_is_no_crash() -> None:
    def interrupt() -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        exits.logged(interrupt)
