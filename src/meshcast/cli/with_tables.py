"""`meshcast predict` of a recommender with embedding tables: given ones, or those that are shipped for it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from meshcast.cli.patience import patience

if TYPE_CHECKING:
    from meshcast.options import Options

SETTINGS = {"batch": "65536", "precision": "float32", "wire": "f32"}
# What `meshcast tables plan` has flags for and `predict` has settings: errors name what was typed.
_ASKED_AS = {"--batch": "--set batch", "--precision": "--set precision", "--wire": "--set wire", "TABLES": "--tables"}
# Options by flat names; all others are refused where they do not have their default's value, or one that asks for nothing.
_HEEDED = frozenset({"on", "devices", "settings", "network", "conditions", "host"})
_OF_SEQUENCES = {"dlrm-hstu": {"batch": "256", "precision": "bfloat16", "wire": "bf16"}}


def recommender_called(name: str) -> str:
    """The recommender that a name is another spelling of (`DCNv2-Criteo`); else the name as it is."""
    from meshcast.jobs import SHIPPED
    from meshcast.zoo import spelling

    return next((known for known in SHIPPED if spelling(known) == spelling(name)), name)


def settings_of(model: str) -> dict[str, str]:
    """What a recommender with tables is predicted with where nothing else is said."""
    return SETTINGS | _OF_SEQUENCES.get(model, {})


def shipped_tables(model: str, options: Options) -> str | None:
    """The list of tables that a recommender is predicted with where none is given; None where it is a program instead.

    DLRM is a JAX program with equal tables too: on one device, with a plan or mesh, or with a setting that tables have not.
    """
    from meshcast.jobs import SHIPPED
    from meshcast.zoo import models

    if model not in SHIPPED:
        return None
    asked = options.program
    as_program = (
        (options.devices or 1) < 2 or asked.plan is not None or asked.mesh or set(asked.settings) - set(SETTINGS)
    )
    return None if model in models() and as_program else SHIPPED[model].tables


def check_heeded(options: Options) -> None:
    """Refuses what is asked for, and tables have no use for.

    Raises:
        UsageError: It is named.
    """
    from meshcast.base import UsageError

    if refused := next(_unheeded(options), ""):
        raise UsageError(
            f"{refused} does not concern a recommender with tables of its own", where=refused,
            fix="leave it out: tables are shared out over all devices, the dense part is data-parallel, as eager PyTorch has it",
        )  # fmt: skip


def predict_with_tables(model: str, source: str, options: Options, *, json: bool) -> None:
    """A recommender of the zoo with tables that are given, in the fastest sharding that is found of them."""
    from meshcast.base import UsageError

    check_heeded(options)
    settings = dict(options.program.settings)
    known = SETTINGS
    if unknown := sorted(set(settings) - set(known)):
        raise UsageError(
            f"no setting {unknown[0]!r} of a recommender with tables", where="--set", fix="one of " + ", ".join(known)
        )
    said = settings_of(model) | settings
    if not said["batch"].isdigit():
        raise UsageError(f"batch={said['batch']!r} is no count of samples", where="--set", fix="write batch=65536")
    with _said_by(_ASKED_AS):
        _answer(model, source, options, said, json=json, defaults=tuple(name for name in known if name not in settings))


def _unheeded(options: Options) -> Iterator[str]:
    """Flags of what is asked for, and tables have no use for; a stack's own options are told by its flag."""
    from meshcast.options import option_places

    if options.brought is not None:
        yield "--stack"
    unheeded = options.differing.intersection(options.written) - _HEEDED
    yield from (
        place.field.declaration.where
        for name, place in option_places().items()
        if name in unheeded and options.value(name)
    )


def _answer(
    model: str, source: str, options: Options, said: Mapping[str, str], *, json: bool, defaults: tuple[str, ...]
) -> None:
    from meshcast.cli.app import emit_json
    from meshcast.cli.tables import print_plan
    from meshcast.jobs import TablesQuestion, layers_for, plan_tables, prediction_json, read_tables

    found = read_tables(source)
    host = options.run.host
    question = TablesQuestion(
        tables=found, on=str(options.on), devices=options.devices, batch=int(said["batch"]), dtype=said["precision"],
        layers=layers_for(model, found), wire=said["wire"],
        network=options.network.model, host="slow" if host in ("auto", "on") else host, conditions=options.network.conditions,
    )  # fmt: skip
    with patience(f"sharing out {len(found)} tables"):
        answer = plan_tables(question)
    if json:
        emit_json(prediction_json(answer, model, defaults))
    else:
        print_plan(answer)


@contextlib.contextmanager
def _said_by(flags: Mapping[str, str]) -> Iterator[None]:
    """Has errors name other flags for the same things."""
    from meshcast.base import MeshcastError

    try:
        yield
    except MeshcastError as error:
        error.where = flags.get(error.where or "", error.where)
        raise
