"""Tagged fields: unknown ones are skipped wherever they stand, known ones must fill the size announced for them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from kio.serial import entity_reader

from headrace.wire import codec
from headrace.wire.compiler.encoder import EncoderSource
from headrace.wire.messages.fetch import FetchRequest
from headrace.wire.schema import Message, MessageField, Payload
from tests.wire.random_messages import all_versions, random_message
from tests.wire.test_codec import NOT_IN_KIO, kio_class, names

FLEXIBLE = [(cls, version) for cls, version in all_versions() if codec.is_flexible(cls, version)]


class FromTheFuture(EncoderSource):
    """An encoder that knows one tagged field more, in every structure: the name of the structure's class."""

    def present(self, cls: type[Message]) -> tuple[list[MessageField], list[MessageField]]:
        body, tagged = super().present(cls)
        news = MessageField("__class__.__name__", "string", False, None, range(100), range(0), 9_999, "")
        return body, [*tagged, news]


def structures(value: Any) -> Iterator[Message]:
    """The message and every structure inside it."""
    if isinstance(value, list):
        for element in value:
            yield from structures(element)
    elif isinstance(value, Message):
        yield value
        for name in value.__struct_fields__:
            yield from structures(getattr(value, name))


@pytest.mark.parametrize("case", FLEXIBLE, ids=names)
def test_unknown_tags_are_ignored_at_every_level(case: tuple[type[Payload], int]) -> None:
    cls, version = case
    rng = random.Random(f"{cls.__name__} {version}")
    for _ in range(4):
        message = random_message(cls, version, rng)
        pieces: list[Any] = []
        FromTheFuture(version, flexible=True).build(cls)(message, pieces)
        data = b"".join(pieces)
        assert codec.decode(cls, version, data) == (message, len(data))
        for structure in {type(s) for s in structures(message) if s != type(s)()}:
            assert structure.__name__.encode() in data


def test_kio_has_no_patience_for_unknown_tags() -> None:
    """Why the decoder is not kio's: newer clients may send what this version does not know (KIP-482)."""
    cls, version = next(case for case in FLEXIBLE if (case[0].__name__, case[1]) not in NOT_IN_KIO)
    pieces: list[Any] = []
    FromTheFuture(version, flexible=True).build(cls)(cls(), pieces)
    with pytest.raises(KeyError):
        entity_reader(kio_class(cls, version))(b"".join(pieces), 0)


def fetch_with_tags(*tags: tuple[int, bytes]) -> bytes:
    """A Fetch request v15 that ends with these tagged fields."""
    listed = b"".join(codec.unsigned_varint(tag) + codec.unsigned_varint(len(value)) + value for tag, value in tags)
    return codec.encode_bytes(FetchRequest(), 15)[:-1] + codec.unsigned_varint(len(tags)) + listed


def test_known_tags_are_read_in_any_order_beside_unknown_ones() -> None:
    cluster, state = b"\x05home", bytes(3) + b"\x07" + bytes(7) + b"\x09" + b"\0"
    for tags in ([(0, cluster), (1, state), (500, b"?")], [(500, b""), (1, state), (0, cluster)]):
        request, _ = codec.decode(FetchRequest, 15, fetch_with_tags(*tags))
        assert request.cluster_id == "home"
        assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (7, 9)


@pytest.mark.parametrize("value", [b"\x05hom", b"\x05homes", b"", b"\x04home"])
def test_a_known_tag_must_end_where_it_says(value: bytes) -> None:
    with pytest.raises(codec.DecodeError):
        codec.decode(FetchRequest, 15, fetch_with_tags((0, value), (500, b"room to read on")))


def test_empty_tagged_fields_cannot_make_the_rest_be_read_again_for_each() -> None:
    """A cluster id that starts behind a field of size zero, repeated: each would copy the whole rest of the frame."""
    rest = codec.unsigned_varint(900_000) + bytes(900_000)
    many = codec.encode_bytes(FetchRequest(), 15)[:-1] + codec.unsigned_varint(50_000) + b"\0\0" * 50_000 + rest
    with pytest.raises(codec.DecodeError, match="cluster_id does not fill its tagged field"):
        codec.decode(FetchRequest, 15, many)


def test_tagged_fields_share_the_budget_of_elements() -> None:
    """Empty ones of two bytes each: a frame has room for millions, and each takes time."""
    three = fetch_with_tags(*[(500, b"")] * 3)
    codec.decode(FetchRequest, 15, three, elements_max=3)
    with pytest.raises(codec.DecodeError, match="more tagged fields"):
        codec.decode(FetchRequest, 15, three, elements_max=2)
