"""Arguments in shares that are not all of one size: JAX refuses them at a program's border, and frameworks have them.

PyTorch's FSDP2 stores rows of a weight in shares of `ceil(rows / devices)`, the last ones with fewer or none. Such a program is
lowered with these dimensions whole, which no op inside depends on, and its arguments and results are then marked as they are
stored. A device is counted as having a full share, as the buffers that are exchanged have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from meshcast.programs.mlir import ir
from meshcast.programs.program import Program, entry_function

UNEVEN = "meshcast.uneven"


def even_parts(
    fn: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], Callable[[Any], None]]:
    """Arguments and options of `jax.jit` that it takes, and what marks the module that it lowers them to.

    Args:
        fn: The function.
        args: Its abstract arguments.
        options: Of `jax.jit`; shardings of results are told for all of them, or for none that is uneven.
    """
    import jax

    tree: Any
    leaves, tree = jax.tree.flatten(tuple(args))
    uneven = {at: leaf.sharding for at, leaf in enumerate(leaves) if not _is_even(leaf.shape, _sharding(leaf))}
    if not uneven:
        return args, dict(options), lambda module: None
    taken = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=_even(leaf.shape, leaf.sharding))
        if at in uneven
        else leaf
        for at, leaf in enumerate(leaves)
    ]
    told, results = dict(options) | {"keep_unused": True}, {}  # so that arguments have the numbers that they have here
    if "out_shardings" in told:
        shape_of: Any
        shardings, shape_of = jax.tree.flatten(told["out_shardings"])
        found = jax.tree.leaves(jax.eval_shape(fn, *args))
        if len(found) == len(shardings):
            results = {
                at: sharding
                for at, (leaf, sharding) in enumerate(zip(found, shardings, strict=True))
                if not _is_even(leaf.shape, sharding)
            }
            even = [_even(leaf.shape, sharding) for leaf, sharding in zip(found, shardings, strict=True)]
            told["out_shardings"] = shape_of.unflatten(even)
    return tree.unflatten(taken), told, lambda module: _mark(module, uneven, results)


def has_uneven_shares(program: Program) -> bool:
    """Whether a program was captured with shares that are not all of one size."""
    return UNEVEN in program.module.operation.attributes


def _sharding(leaf: Any) -> Any:
    return getattr(leaf, "sharding", None)


def _dimensions(shape: tuple[int, ...], sharding: Any) -> list[tuple[Any, int]]:
    """What splits each dimension, and into how many shares."""
    entries = (*sharding.spec, *(None,) * (len(shape) - len(sharding.spec)))
    found = []
    for entry in entries:
        names = (entry,) if isinstance(entry, str) else entry or ()
        shares = 1
        for name in names:
            shares *= sharding.mesh.shape[name]
        found.append((entry, shares))
    return found


def _is_even(shape: tuple[int, ...], sharding: Any) -> bool:
    if getattr(sharding, "spec", None) is None:
        return True
    return all(size % shares == 0 for size, (_, shares) in zip(shape, _dimensions(shape, sharding), strict=True))


def _even(shape: tuple[int, ...], sharding: Any) -> Any:
    """The sharding without what does not divide."""
    if _is_even(shape, sharding):
        return sharding
    from jax.sharding import NamedSharding, PartitionSpec

    dimensions = zip(shape, _dimensions(shape, sharding), strict=True)
    return NamedSharding(
        sharding.mesh, PartitionSpec(*(e if size % shares == 0 else None for size, (e, shares) in dimensions))
    )


def _mark(module: Any, arguments: Mapping[int, Any], results: Mapping[int, Any]) -> None:
    """Writes shardings of the numbered arguments and results into a module."""
    main = entry_function(module, where="jax")
    with module.context:
        for name, said in (("arg_attrs", arguments), ("res_attrs", results)):
            if not said:
                continue
            marks = list(main.attributes[name])
            for at, sharding in said.items():
                had: Any = ir.DictAttr(marks[at])
                own = {each.name: each.attr for each in had}
                marks[at] = ir.DictAttr.get(own | {"sdy.sharding": ir.Attribute.parse(_text(sharding))})
            main.attributes[name] = ir.ArrayAttr.get(marks)
        module.operation.attributes[UNEVEN] = ir.UnitAttr.get()


def _text(sharding: Any) -> str:
    """Shardy's spelling."""
    entries = (((entry,) if isinstance(entry, str) else entry or ()) for entry in sharding.spec)
    return (
        "#sdy.sharding<@mesh, ["
        + ", ".join("{" + ", ".join(f'"{name}"' for name in names) + "}" for names in entries)
        + "]>"
    )
