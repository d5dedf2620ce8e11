"""A pipeline's file: TOML, `schema = "meshcast.pipeline/1"`; programs are named relative to it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import cast, get_args

from meshcast.base import InputError, Mesh
from meshcast.hardware import Reader, document
from meshcast.jobs.pipeline.definition import GradientReduction, Part, PartWiring, Pipeline, ReductionKind, checked
from meshcast.simulate import SCHEDULES

SCHEMA = "meshcast.pipeline/1"


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline in a file.

    Raises:
        InputError: The file cannot be read or does not follow the schema; every mistake is named with its line.
        UsageError: It does, but its numbers do not fit together.
    """
    if not path.exists():
        raise InputError("no such file", where=str(path), fix="check the path")
    doc = document.read_document(path)
    if doc.data.get("schema") != SCHEMA:
        raise InputError(
            f"a .toml target is a pipeline or a job, and this file has schema {doc.data.get('schema')!r}",
            where=str(path),
            fix=f'write schema = "{SCHEMA}" or "meshcast.job/1"; a device or cluster goes behind --on',
        )
    reader = Reader(doc)
    reader.text("schema")
    count = reader.length("stages")
    if not count:
        reader.reject(("stages",), "missing tables [[stages]]")
    parts = tuple(_part(reader, index, doc.place(("stages", index)), path.parent) for index in range(count))
    mesh = Mesh.of({name: reader.whole("mesh", name) for name in reader.names("mesh")})
    barrier = reader.flag("barrier") if "barrier" in doc.data else None
    known = {item.name for item in fields(PartWiring)}
    wiring = {name: reader.text("wiring", name) for name in reader.names("wiring") if name in known}
    pipeline = Pipeline(
        name=reader.text("name", default=path.stem),
        parts=parts,
        mesh=mesh,
        microbatches=reader.whole("microbatches"),
        schedule=reader.choice("schedule", among=SCHEDULES) if "schedule" in doc.data else "1f1b",
        virtual_stages=reader.whole("virtual_stages", default=1),
        reduction=_reduction(reader) if "reduce" in doc.data else None,
        overlap_sends=reader.flag("overlap_sends", default=True),
        barrier=barrier,
        wiring=PartWiring(**wiring),
        source=str(path),
    )
    reader.finish()
    return checked(pipeline)


def _part(reader: Reader, index: int, where: str, folder: Path) -> Part:
    targets = {
        what: _relative(reader.text("stages", index, what, default=""), folder)
        for what in ("forward", "backward", "weight", "update")
    }
    return Part(
        name=reader.text("stages", index, "name", default=f"part {index}"),
        **targets,
        count=reader.whole("stages", index, "count", default=1),
        where=where,
    )


def _relative(target: str, folder: Path) -> str | None:
    """A target as seen from the file: paths that exist there, or their functions' files, lie beside it."""
    if not target:
        return None
    head, colon, function = target.rpartition(":")
    path = head if colon and function.isidentifier() else target
    beside = folder / path
    if not Path(path).is_absolute() and beside.is_file():
        return f"{beside}:{function}" if path is head else str(beside)
    return target


def _reduction(reader: Reader) -> GradientReduction:
    over = reader.texts("reduce", "over")
    if not over:
        reader.reject(("reduce", "over"), "reduce.over: expected the mesh axes that hold replicas, such as ['data']")
    kind = reader.choice("reduce", "kind", among=get_args(ReductionKind), default="all_reduce")
    return GradientReduction(
        over=over, kind=cast(ReductionKind, kind), buckets=reader.whole("reduce", "buckets", default=1)
    )
