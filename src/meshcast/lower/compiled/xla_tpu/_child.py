"""The child process that holds the TPU compiler: 200 MB of native code that may abort, and must not abort ours.

No TPU is needed, and no `jax`: the plugin is loaded by jaxlib, a topology made from its name, and programs compiled for
that. libtpu looks for a TPU, its metadata server and its lock when it is loaded; the environment that keeps it from that
is set before.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import sys
from typing import Any

from meshcast.base import python_command, serve

# What a TPU VM's metadata server would say does not matter for a compiler; a second process must not wait for the first.
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
}
os.environ.update(ENVIRONMENT)


def with_all_the_stack_there_is() -> None:
    """Starts this process again where its stack may not grow as far as allowed; a limit counts from a program's start on.

    The compiler recurses deeply: on a training step of ResNet-50 for v6e it overflows the usual 8 MiB and dies.
    """
    limit, most = resource.getrlimit(resource.RLIMIT_STACK)
    if limit != most:
        resource.setrlimit(resource.RLIMIT_STACK, (most, most))
        os.execv(sys.executable, python_command(__spec__.name))


if __name__ == "__main__":
    with_all_the_stack_there_is()

from jaxlib import _jax, xla_client  # noqa: E402

from meshcast.lower.compiled.plugin_child import compilation_entry, compiled_for_plugin  # noqa: E402
from meshcast.partition import compile_options  # noqa: E402
from meshcast.programs import ir, make_context  # noqa: E402


@functools.cache
def _plugin() -> Any:
    """The compiler, loaded once."""
    library = importlib.import_module("libtpu").get_library_path()
    found = xla_client.load_pjrt_plugin_dynamically("tpu", library)
    xla_client.initialize_pjrt_plugin("tpu")
    return found


def compile_module(data: bytes, *, topology: str, options: dict[str, Any], devices: int) -> bytes:
    """JSON of the optimised, scheduled HLO of one device's program, and what its buffers take."""
    described_topology: Any = xla_client.make_c_api_device_topology(_plugin(), topology, **options)
    # Neighbours in the order of coordinates, whichever host they belong to.
    chosen = sorted(described_topology._make_compile_only_devices(), key=lambda device: device.id)[:devices]
    with make_context(), ir.Location.unknown():
        module: Any = ir.Module.parse(data)
        wanted = compile_options(devices, ids=[device.id for device in chosen])
        found = compiled_for_plugin(chosen[0].client, module, _jax.DeviceList(tuple(chosen)), wanted)
    return json.dumps(compilation_entry(found)).encode()


def answer(request: dict[str, Any], data: bytes) -> bytes:
    """One request: a topology's name and options, the number of devices; and the module's bytecode."""
    return compile_module(data, topology=request["topology"], options=request["options"], devices=request["devices"])


if __name__ == "__main__":
    serve(answer)
