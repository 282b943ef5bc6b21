import pytest

from roq.hcm.port_book import PortBook, port_of


@pytest.mark.parametrize(
    ("endpoint", "port"),
    [
        ("tcp://127.0.0.1:5500", 5500),
        ("tcp://[::1]:5500", 5500),
        ("tcp://box.example:1", 1),
        ("tcp://127.0.0.1", None),
        ("tcp://h:0", None),
        ("tcp://h:65536", None),
        ("tcp://h:99999999999", None),
        ("tcp://h:\u0665", None),
        ("", None),
    ],
)
def test_the_port_of_an_address(endpoint, port) -> None:
    assert port_of(endpoint) == port


def test_ports_are_kept_away_from_while_used_and_for_ten_minutes_after() -> None:
    book = PortBook()
    assert book.took("a", [1, 2])
    assert book.took("b", [3])
    assert not book.took("b", [3])
    assert book.avoid(0.0) == [1, 2, 3]
    book.left("a", 100.0)
    assert book.avoid(699.9) == [1, 2, 3]
    assert book.avoid(700.0) == [3]


def test_a_child_that_never_told_leaves_nothing() -> None:
    book = PortBook()
    book.left("a", 0.0)
    assert book.avoid(0.0) == []
