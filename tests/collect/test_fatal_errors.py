"""A fatal error in the log is a crash of its own only if nothing else tells of it."""

from __future__ import annotations

from crashkit.collect.supervise.fatal_errors import PATIENCE, FatalErrors


def free() -> bool:
    return False


def held() -> bool:
    return True


def test_it_is_due_once_when_nothing_else_came() -> None:
    errors = FatalErrors()
    errors.seen(1, 10.0, is_told=False)
    assert errors.awaited and not errors.is_due(10.0 + PATIENCE - 0.1, free)
    assert errors.is_due(10.0 + PATIENCE, free) and not errors.awaited
    errors.seen(1, 100.0, is_told=False)
    assert not errors.is_due(200.0, free)
    errors.seen(2, 200.0, is_told=False)
    assert errors.is_due(300.0, free) and errors.count == 2


def test_a_death_explains_it() -> None:
    errors = FatalErrors()
    errors.seen(1, 10.0, is_told=False)
    errors.explained()
    assert not errors.awaited and not errors.is_due(100.0, free)


def test_one_that_follows_another_trace_is_not_awaited() -> None:
    errors = FatalErrors()
    errors.seen(1, 10.0, is_told=True)
    assert (errors.count, errors.awaited, errors.is_due(100.0, free)) == (1, False, False)


def test_whom_a_tracer_just_let_go_is_about_to_die() -> None:
    """Its end is seen a moment later than that nobody holds it any more: on a busy machine that was a second crash."""
    errors = FatalErrors()
    errors.seen(1, 10.0, is_told=False)
    assert not errors.is_due(50.0, held) and errors.awaited
    assert not errors.is_due(50.01, free)
    assert errors.is_due(50.0 + PATIENCE, free), "it does not wait for ever"


def test_the_time_since_it_was_let_go_counts() -> None:
    """Not since some earlier look: within that time it was held, let go, and is about to die."""
    errors = FatalErrors()
    errors.seen(1, 10.0, is_told=False)
    assert not errors.is_due(10.0 + PATIENCE - 0.1, held)
    assert not errors.is_due(10.0 + PATIENCE, free)
    assert errors.is_due(10.0 + 2 * PATIENCE, free)
