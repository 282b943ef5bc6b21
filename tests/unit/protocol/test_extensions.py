import pytest

from roq.model import PublisherId
from roq.protocol.batch import HEADER_BYTES, pack, read_header, read_payloads
from roq.protocol.extensions import pack_floor, read_floor


def test_a_floor_comes_out_as_it_went_in() -> None:
    assert read_floor(pack_floor(2**63 - 1)) == 2**63 - 1


def test_kinds_that_are_not_known_are_skipped() -> None:
    assert read_floor(bytes([9, 3, 1, 2, 3]) + pack_floor(7)) == 7


@pytest.mark.parametrize("area", [b"", b"\x01", b"\x01\x08abc", b"\x01\x02ab", b"\x09\xff"])
def test_an_area_without_a_whole_floor_has_none(area: bytes) -> None:
    assert read_floor(area) is None


def test_a_batch_with_extensions_is_read_like_any_other() -> None:
    batch = pack(
        [b"a", b"b"],
        publisher=PublisherId(b"p" * 16),
        epoch=1,
        link_number=2,
        first_sequence=3,
        created_us=4,
        extensions=pack_floor(3),
    )
    header = read_header(batch)
    assert read_payloads(batch, header) == [b"a", b"b"]
    assert read_floor(batch[HEADER_BYTES : HEADER_BYTES + header.ext_bytes]) == 3
