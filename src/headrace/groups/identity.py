"""A group's lasting identity: the id `cgp_<ulid>` and the resource locator `<org>/consumer-groups/<slug>`.

Kafka knows a group by its name alone. Here a group also keeps an id from its first member on, through the
last leave, a restart and a move to another node, so that other systems can refer to it.
"""

import re
from collections.abc import Collection, Iterator
from hashlib import blake2b
from itertools import count

import msgspec

SLUG_MAX_CHARS = 63
_FALLBACK_SLUG = "group"
_COUNTED_TO = 10
_OUTSIDE = re.compile(r"[^a-z0-9]+")


class GroupIdentity(msgspec.Struct, frozen=True):
    id: str
    org: str
    slug: str

    @property
    def locator(self) -> str:
        return f"{self.org}/consumer-groups/{self.slug}"


def slug_of(group_id: str) -> str:
    """Lower case; all but a-z, 0-9 and - become -; runs collapse; trimmed; at most 63 characters."""
    slug = _OUTSIDE.sub("-", group_id.lower()).strip("-")
    return slug[:SLUG_MAX_CHARS].strip("-") or _FALLBACK_SLUG


def slug_candidates(group_id: str) -> Iterator[str]:
    """The slug, then the slug with -2, -3, ...: two group ids with one slug stay two groups.

    From the tenth on the suffix comes from the group id: where thousands share a slug, counting would take too long.
    """
    slug = slug_of(group_id)
    yield slug
    for attempt in count(2):
        suffix = f"-{attempt}" if attempt < _COUNTED_TO else f"-{_digest(f'{attempt}:{group_id}')}"
        yield slug[: SLUG_MAX_CHARS - len(suffix)].rstrip("-") + suffix


def _digest(text: str) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def mint(group_id: str, org: str, ulid: str, taken_slugs: Collection[str]) -> GroupIdentity:
    slug = next(candidate for candidate in slug_candidates(group_id) if candidate not in taken_slugs)
    return GroupIdentity(id=f"cgp_{ulid.lower()}", org=org, slug=slug)
