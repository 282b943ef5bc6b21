from pathlib import Path

from roq.model import PublisherId
from roq.read.message import Batch, Gap, Message
from roq.testing.history import History

P = PublisherId(b"p" * 16)


def recorded() -> History:
    history = History()
    history.sent(P, "eu.be", b"0", b"1", b"2", b"3")
    history.sent(P, "us", b"a")
    history.subscribed("reader", ["eu."])
    return history


def receive(history: History, *sequences: int) -> None:
    for sequence in sequences:
        history.received_raw("reader", P, "eu.be", sequence, str(sequence).encode())


def test_what_arrives_once_and_in_order_is_fine() -> None:
    history = recorded()
    history.received("reader", Batch([b"0", b"1"], "eu.be", P, 0, 0, 0))
    history.received("reader", *Batch([b"2", b"3"], "eu.be", P, 2, 0, 0).messages())
    verdict = history.check()
    assert verdict.ok
    assert (verdict.sent, verdict.received) == (4, 4)


def test_every_kind_of_fault_is_told_apart() -> None:
    history = recorded()
    receive(history, 0, 2, 1, 1)
    history.received("reader", Message(b"?", Batch([b"?"], "eu.be", P, 0, 0, 0), 0))
    verdict = history.check()
    assert (verdict.lost, verdict.duplicated, verdict.reordered, verdict.foreign) == (1, 1, 1, 1)
    assert not verdict.ok
    assert "reader 70707070 'eu.be'" in str(verdict)


def test_a_topic_that_was_not_wanted_is_not_missed() -> None:
    history = recorded()
    receive(history, 0, 1, 2, 3)
    assert [row.topic for row in history.check().rows] == ["eu.be"]


def test_a_loss_that_was_reported_is_counted_apart() -> None:
    history = recorded()
    receive(history, 0, 3)
    history.gap("reader", Gap(topic="eu.be", text="", publisher=P, sequence=1, messages=2))
    verdict = history.check()
    assert (verdict.lost, verdict.counted_lost) == (0, 2)
    assert not verdict.ok


def test_who_joined_late_misses_nothing_before_its_first_message() -> None:
    history = recorded()
    history.subscribed("reader", ["eu."], from_first=True)
    receive(history, 2, 3)
    assert history.check().ok


def test_who_received_nothing_has_lost_everything() -> None:
    assert recorded().check().lost == 4
    history = recorded()
    history.subscribed("reader", ["eu."], from_first=True)
    assert history.check().lost == 4


def test_what_comes_under_a_topic_that_nobody_asked_for_is_foreign() -> None:
    history = recorded()
    receive(history, 0, 1, 2, 3)
    history.received_raw("reader", P, "us", 0, b"a")
    verdict = history.check()
    assert (verdict.foreign, verdict.lost) == (1, 0)


def test_messages_that_cannot_be_told_apart_are_counted() -> None:
    history = History()
    history.subscribed("reader")
    history.sent(P, "t", b"same", b"same", b"other")
    history.received_raw("reader", P, "t", 0, b"same", b"same", b"other")
    verdict = history.check()
    assert verdict.ok
    assert verdict.total("alike") == 1


def test_histories_of_several_processes_are_merged_from_files(tmp_path: Path) -> None:
    recorded().save(tmp_path / "publisher")
    reader = History()
    reader.subscribed("reader", ["eu."])
    receive(reader, 0, 1, 2)
    reader.gap("reader", Gap(topic="eu.be", text="", publisher=P, sequence=3, messages=1))
    reader.save(tmp_path / "reader")
    verdict = History().load(tmp_path / "publisher", tmp_path / "reader").check()
    assert (verdict.sent, verdict.received, verdict.counted_lost, verdict.lost) == (4, 3, 1, 0)
    assert recorded().messages(["eu."]) == 4


def test_who_joined_late_is_to_get_everything_that_is_sent_once_it_is_in_force() -> None:
    history = History()
    history.sent(P, "t", b"a", b"b")
    history.subscribed("late", from_first=True)
    history.in_force("late")
    history.sent(P, "t", b"c", b"d")
    history.received_raw("late", P, "t", 3, b"d")
    (row,) = history.check().rows
    assert (row.sent, row.lost) == (2, 1)


def test_what_was_received_before_being_in_force_counts_as_well() -> None:
    history = History()
    history.sent(P, "t", b"a", b"b")
    history.subscribed("late", from_first=True)
    history.in_force("late")
    history.received_raw("late", P, "t", 1, b"b")
    assert history.check().ok


def test_what_is_reported_as_missing_of_the_time_before_being_in_force_was_not_promised() -> None:
    history = History()
    history.subscribed("late", from_first=True)
    history.sent(P, "t", b"a", b"b", b"c", b"d")
    history.received_raw("late", P, "t", 0, b"a")
    history.in_force("late")
    history.sent(P, "t", b"e", b"f")
    history.in_force("late")  # it was that already
    history.received_raw("late", P, "t", 5, b"f")
    history.gap("late", Gap(topic="t", text="", publisher=P, sequence=1, messages=4))
    (row,) = history.check().rows
    assert (row.excused, row.counted_lost, row.lost) == (3, 1, 0)


def test_who_has_died_misses_nothing_after_its_last_message() -> None:
    history = History()
    history.sent(P, "t", b"a", b"b", b"c")
    history.subscribed("dead")
    history.received_raw("dead", P, "t", 1, b"b")
    history.gone("dead")
    (row,) = history.check().rows
    assert (row.sent, row.lost) == (2, 1)


def test_what_nobody_has_promised_is_not_missing() -> None:
    history = History()
    history.sent(P, "t", b"a", b"b", b"c")
    history.subscribed("one")
    history.received_raw("one", P, "t", 0, b"a")
    history.excuse(P, "t", 1, 3)
    (row,) = history.check().rows
    assert (row.lost, row.counted_lost, row.excused) == (0, 0, 2)
    assert history.check().ok


def test_what_nobody_has_promised_is_not_missing_without_a_word_before_what_came() -> None:
    history = History()
    history.sent(P, "t", b"a", b"b", b"c", b"d")
    history.subscribed("one")
    history.received_raw("one", P, "t", 2, b"c")
    history.excuse(P, "t", 0, 4)
    history.gap("one", Gap(topic="t", text="", publisher=P, sequence=0, messages=1))
    (row,) = history.check().rows
    assert (row.lost, row.counted_lost, row.excused) == (1, 0, 2)


def test_what_left_a_log_unread_is_reported_without_a_name_and_counts_at_the_end_of_a_stream() -> (
    None
):
    vague = Gap(topic="eu.be", text="batches have left the memory of exchange x1")
    for gap, counted, lost in (
        (vague, 2, 1),
        (Gap(topic="us", text=vague.text), 0, 3),
    ):
        history = recorded()
        receive(history, 1)
        history.gap("reader", gap)
        verdict = History().merge(history).check()
        assert (verdict.counted_lost, verdict.lost) == (counted, lost), gap


def test_what_was_sent_after_a_report_without_a_name_was_not_in_that_hole() -> None:
    history = History()
    history.subscribed("reader")
    history.sent(P, "t", b"a", b"b", b"c")
    history.received_raw("reader", P, "t", 0, b"a")
    history.gap("reader", Gap(topic="t", text="batches have left the memory of exchange x1"))
    history.sent(P, "t", b"d", b"e")
    (row,) = history.check().rows
    assert (row.counted_lost, row.lost) == (2, 2)


def test_what_was_sent_after_such_a_report_is_missed_also_if_both_come_from_files(
    tmp_path: Path,
) -> None:
    now = [10.0]
    publishing, reading = History(clock=lambda: now[0]), History(clock=lambda: now[0])
    reading.subscribed("reader")
    for text in (b"a", b"b"):
        publishing.sent(P, "t", text)
    reading.received_raw("reader", P, "t", 0, b"a")
    now[0] = 10.5
    reading.gap("reader", Gap(topic="t", text="batches have left the memory of exchange x1"))
    now[0] = 11.0
    publishing.sent(P, "t", b"c")
    now[0] = 12.0
    publishing.sent(P, "t", b"d", b"e")
    publishing.save(tmp_path / "publishing")
    reading.save(tmp_path / "reading")
    verdict = History().load(tmp_path / "publishing", tmp_path / "reading").check()
    # The first one after the report may have been on its way already.
    assert (verdict.counted_lost, verdict.lost) == (2, 2)
