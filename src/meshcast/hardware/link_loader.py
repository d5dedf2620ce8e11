"""From a TOML file to a `LinkTechnology`."""

from __future__ import annotations

import math
from typing import cast, get_args

from meshcast.base import Dimension
from meshcast.hardware.document import Document
from meshcast.hardware.link import Library, LinkProtocol, LinkTechnology
from meshcast.hardware.loader import head
from meshcast.hardware.reader import Reader

LINK_SCHEMA = "meshcast.link/1"


def link(doc: Document) -> LinkTechnology:
    """The link technology that a document describes.

    Raises:
        InputError: The document does not follow the schema.
    """
    file = Reader(doc)
    head(file, LINK_SCHEMA)
    protocols = tuple(_protocol(file, index) for index in range(file.length("protocols")))
    if not protocols:
        file.reject(("protocols",), "missing key 'protocols'")
    start = file.quantity("start", of=Dimension.TIME, may_be_zero=True)
    pair_start = file.optional("pair_start", of=Dimension.TIME, may_be_zero=True)
    in_network = file.optional("in_network_share", of=Dimension.SHARE)
    in_network_start = file.optional("in_network_start", of=Dimension.TIME, may_be_zero=True)
    rings = file.optional("rings_share", of=Dimension.SHARE)
    result = LinkTechnology(
        name=file.text("name"),
        title=file.text("title", default="") or file.text("name"),
        library=cast(Library, file.choice("library", among=get_args(Library))),
        between_hosts=file.flag("between_hosts"),
        share=_share(file, "share"),
        start_s=start,
        pair_start_s=start if pair_start is None else pair_start,
        post_s=file.quantity("post", of=Dimension.TIME, may_be_zero=True),
        protocols=protocols,
        in_network_share=0.0 if in_network is None else in_network,
        in_network_start_s=0.0 if in_network_start is None else in_network_start,
        in_network_members=file.count("in_network_members", default=2),
        in_network_heads=file.count("in_network_heads", default=0),
        in_network_channels=file.count("in_network_channels", default=1),
        in_network_chunk=file.optional("in_network_chunk", of=Dimension.BYTES) or 0.0,
        variation=file.optional("variation", of=Dimension.SHARE) or 0.0,
        ring_plateau=file.optional("ring_plateau", of=Dimension.SHARE) or 1.0,
        rings_share=1.0 if rings is None else rings,
        aliases=file.texts("aliases"),
        notes=file.text("notes", default=""),
        facts=file.facts,
        sources=file.sources(),
    )
    for key, value in (("in_network_share", result.in_network_share), ("rings_share", result.rings_share)):
        if value > 1:
            file.reject((key,), f"{key}: a share is 100 % at most, got {value:.0%}")
    file.finish()
    return result


def _protocol(file: Reader, index: int) -> LinkProtocol:
    key = ("protocols", index)
    limit = file.optional(*key, "limit", of=Dimension.BANDWIDTH)
    return LinkProtocol(
        name=file.text(*key, "name", default=""),
        share=_share(file, *key, "share"),
        step_s=file.quantity(*key, "step", of=Dimension.TIME, may_be_zero=True),
        chunk_s=file.quantity(*key, "chunk", of=Dimension.TIME, may_be_zero=True),
        limit=math.inf if limit is None else limit,
        start_s=file.optional(*key, "start", of=Dimension.TIME, may_be_zero=True) or 0.0,
    )


def _share(file: Reader, *key: str | int) -> float:
    value = file.quantity(*key, of=Dimension.SHARE)
    if value > 1:
        file.reject(key, f"{'.'.join(map(str, key))}: a share is 100 % at most, got {value:.0%}")
    return value or 1.0
