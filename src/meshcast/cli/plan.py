"""`meshcast plan MODEL --on X --devices N`."""

from __future__ import annotations

from typing import Annotated

import typer

from meshcast.cli import arguments as flags
from meshcast.cli.completion import completed, model_names
from meshcast.cli.explored import tell_exploration
from meshcast.cli.flags import STAGES, FlagValues, runs
from meshcast.cli.patience import patience
from meshcast.cli.quantities import flag_quantity

# What plans decide themselves, or what does not concern models that train on healthy devices.
WITHOUT = {
    "devices": "it takes several",
    "mesh": "plans make meshes",
    "dims": "models have settings",
    "trip_counts": "models have no loops that end on data",
    "levers": "the search itself is what would help",
    "placement": "it is of one program's devices",
    "fabric": "it is of one program's devices",
    "beside": "it is of one program's devices",
    "conditions": "plans are compared on healthy devices",
    "durations": "models are no traces",
    "what_if": "explore searches over hardware",
}


@runs(*STAGES, without=WITHOUT)
def plan_command(
    model: Annotated[
        str,
        typer.Argument(
            autocompletion=completed(model_names),
            metavar="MODEL",
            help="A model of the zoo, or a Hugging Face config.json or its folder.",
        ),
    ],
    devices: Annotated[
        str, typer.Option("--devices", metavar="N[,N...]", help="How many devices; of several numbers all are tried.")
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="More settings, as behind --set.")
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="KEY=V[,V...]", help="Values of a plan's key to search over; may be repeated."),
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many plans are wanted.", min=1)] = 5,
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Predict every plan, whatever its bound: slow, and the same answer.")
    ] = False,
    objective: Annotated[
        str, typer.Option("--for", metavar="NAME", help="time, throughput, energy, cost, memory or devices.")
    ] = "time",
    within: Annotated[
        str | None,
        typer.Option("--within", metavar="TIME", help="The longest step: the fewest devices that keep to it."),
    ] = None,
    largest: Annotated[
        str | None,
        typer.Option("--largest", metavar="NAME", help="seq or mbs: the largest that fits, and the best plan with it."),
    ] = None,
    tokens: Annotated[
        str | None, typer.Option("--tokens", metavar="N", help="Tokens of a whole run, such as 15T: days and money.")
    ] = None,
    price: Annotated[
        str | None,
        typer.Option("--price", metavar="USD|list", help="Dollars of a device and hour; list: the catalogue's, dated."),
    ] = None,
    grid: Annotated[
        float | None,
        typer.Option("--grid", metavar="KG", help="Kilograms of CO2 of a kWh; the world's on average.", min=0.0),
    ] = None,
    engine: Annotated[str, typer.Option("--engine", help="processes, in-process or ray.")] = "processes",
    workers: Annotated[int | None, typer.Option("--workers", help="Processes; one for each core.", min=1)] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", metavar="HOST:PORT|auto", help="A Ray cluster to join; else one is started."),
    ] = None,
    plot: flags.PlotFlag = None,
    *,
    asked: FlagValues,
    json: flags.Json = False,
) -> None:
    """Finds the best parallel plans of MODEL: step time, MFU, memory, tokens/s, and what limits each.

    Every factorisation of the devices that divides the model is looked at; what cannot be among the best by its bound is
    not predicted, so that the answer is that of trying all. --plan says what is decided already.
    """
    from meshcast.base import Dimension
    from meshcast.explore import (
        PlanQuestion,
        answer_question,
        count_of,
        read_choices,
        read_counts_of,
    )
    from meshcast.options import Options, pairs

    if plot is not None:
        from meshcast.report import check_plot

        check_plot(plot)
    counts = read_counts_of(devices, where="--devices")
    given = asked.texts()
    question = PlanQuestion(
        model=model,
        on=given.pop("on", None) or str(Options().on),
        devices=counts,
        settings={**given.pop("settings", {}), **pairs(more, "--set")},
        plan=given.pop("plan", None),
        choices=read_choices(tries or ()),
        options=given,
        asked={
            "objectives": (objective,),
            "top": top,
            "search": "exhaustive" if exhaustive else None,
            "tokens": count_of(tokens, where="--tokens") if tokens is not None else None,
            "price": price,
            "kg_per_kwh": grid,
            "engine": engine,
            "workers": workers,
            "address": address,
            # A scaling curve has the best plan of every number of devices, not of all together.
            **({"per": ("devices",)} if plot is not None and len(counts) > 1 else {}),
        },
        within_s=flag_quantity(within, Dimension.TIME, "--within") if within is not None else None,
        largest=largest,
    )
    with patience(f"searching plans of {model}"):
        found = answer_question(question)
    if plot is not None and found.best:
        from meshcast.report import save_figure, search_figure

        save_figure(search_figure(found, title=question.title(found)), plot)
    tell_exploration(found, question.title(found), json=json)
