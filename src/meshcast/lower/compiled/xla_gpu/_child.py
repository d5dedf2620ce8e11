"""The child process that holds XLA's CUDA compiler: 200 MB of native code that may abort, and must not abort ours.

No GPU, driver or CUDA runtime is needed, and no `jax`: the plugin is loaded by jaxlib, a topology made from the target's
description, and programs compiled for that.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from typing import Any

from jaxlib import _jax, xla_client

from meshcast.base import serve
from meshcast.lower.compiled.plugin_child import compilation_entry, compiled_for_plugin
from meshcast.partition import compile_options
from meshcast.programs import ir, make_context


@functools.cache
def _plugin(library: str) -> Any:
    """The compiler, loaded once."""
    found = xla_client.load_pjrt_plugin_dynamically("cuda", library)
    xla_client.initialize_pjrt_plugin("cuda")
    return found


def compile_module(
    data: bytes, *, library: str, toolkit: str, target: str, topology: str, devices: int, flags: Mapping[str, str]
) -> bytes:
    """JSON of the optimised, scheduled HLO of one device's program, and what its buffers take."""
    cluster: Any = xla_client.make_c_api_device_topology(_plugin(library), "", target_config=target, topology=topology)
    topology_devices = cluster._make_compile_only_devices()
    client: Any = topology_devices[0].client
    listed = _jax.DeviceList(tuple(topology_devices[:devices]))
    options = _options(devices, toolkit, flags)
    with make_context(), ir.Location.unknown():
        module: Any = ir.Module.parse(data)
        found = compiled_for_plugin(client, module, listed, options)
    return json.dumps(compilation_entry(found)).encode()


def _options(devices: int, toolkit: str, flags: Mapping[str, str]) -> Any:
    """One program over all devices, with what the GPU's compiler needs besides."""
    options = compile_options(devices)
    # libdevice and ptxas. Never left open: XLA would run the ptxas of a folder `cuda_sdk_lib` in the current one.
    options.executable_build_options.debug_options.xla_gpu_cuda_data_dir = toolkit
    options.env_option_overrides = list(flags.items())
    return options


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """One request: where the compiler lies, target description, topology, number of devices, flags; and the module's bytecode."""
    return compile_module(
        data,
        library=request["library"],
        toolkit=request["toolkit"],
        target=request["target"],
        topology=request["topology"],
        devices=request["devices"],
        flags=request["flags"],
    )


if __name__ == "__main__":
    serve(answer)
