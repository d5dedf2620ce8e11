"""Handing a module to a compiler plugin, for the child processes that hold one."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import passmanager

from meshcast.partition import scans_to_windows


def compiled_for_plugin(client: Any, module: Any, devices: Any, options: Any) -> Any:
    """The executable of a module; what a newer JAX writes and the plugin's format lacks is spelled out first."""
    try:
        return client.compile(module, devices, options)
    except Exception as error:
        if "Failed to serialize StableHLO" not in str(error):
            raise
        _spell_out(module)
        return client.compile(module, devices, options)


def _spell_out(module: Any) -> None:
    """Scans and composites in older terms."""
    scans_to_windows(module)
    passmanager.PassManager.parse("builtin.module(func.func(stablehlo-legalize-composite-to-call))").run(
        module.operation
    )


def compilation_entry(executable: Any) -> dict[str, Any]:
    """The optimised, scheduled HLO of one device's program, and what its buffers take."""
    memory = executable.get_compiled_memory_stats()
    return {
        "hlo": executable.hlo_modules()[0].to_string(),
        "arguments": memory.argument_size_in_bytes,
        "outputs": memory.output_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "aliased": memory.alias_size_in_bytes,
    }
