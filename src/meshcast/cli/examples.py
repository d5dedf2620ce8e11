"""Examples at the end of every `--help`: lines that can be typed as they stand (`tests/cli/test_help.py` reads them)."""

from __future__ import annotations

EXAMPLES = {
    "": (
        "meshcast predict llama3-8b --on dgx-h100 --plan fsdp=64 --set batch=64",
        "meshcast plan llama3-8b --on dgx-h100 --devices 64 --set batch=128",
        "meshcast serve",
    ),
    "predict": (
        "meshcast predict step.mlir --on h200",
        "meshcast predict llama3-8b --on dgx-h100 --plan fsdp=64 --set batch=64 --set seq=8192",
        "meshcast predict llama3-8b --on dgx-h100 --plan tp=8 --set mode=decode --set batch=16 --json",
    ),
    "compare": (
        "meshcast compare step.mlir --on h100-sxm,h200,b200 --fidelity roofline,analytical",
        "meshcast compare llama3-8b --on dgx-h100 --set batch=64 --try plan=fsdp=8 --no-folder",
    ),
    "plan": (
        "meshcast plan llama3-8b --on dgx-h100 --devices 64 --set batch=128",
        "meshcast plan llama3-8b --on dgx-h100 --devices 8,16,32 --set batch=128 --plot scaling.svg",
    ),
    "explore": ("meshcast explore space.toml", "meshcast explore space.toml --resume --sensitivity"),
    "serve": ("meshcast serve", "meshcast serve --port 9000 --runs my-runs"),
    "report": (
        "meshcast report step.mlir --on h200 -o report.html",
        "meshcast report llama3-8b --on dgx-h100 --plan fsdp=64 --set batch=64 -o llama.html",
    ),
    "show": (
        "meshcast show step.mlir",
        "meshcast show step.mlir --on h200 --kernels",
        "meshcast show linked/job --analysis",
    ),
    "trace": ("meshcast trace step.mlir --on h200 --format perfetto -o step.pftrace",),
    "trace link": (
        "meshcast trace link --host et.json --device kineto.json -o linked",
        "meshcast trace link --host ets --device profiles -o linked --form json",
    ),
    "trace share": (
        "meshcast trace share linked/job -o shared --coarsen 5%",
        "meshcast trace share shared --against linked/job",
    ),
    "generate": (
        "meshcast generate --like llama3-70b --nodes 2000 --seed 7 -o out/like-llama",
        "meshcast generate --suite suite --seed 7",
    ),
    "collective": ("meshcast collective all_reduce --bytes 1GiB --on dgx-h100 --devices 64",),
    "tables": (
        "meshcast tables plan mlperf-dcnv2 --on dgx-h100 --devices 8 --batch 65536 --model dcnv2 --wire bf16",
        "meshcast tables show criteo-1tb --on h200",
    ),
    "systolic": ("meshcast systolic --rows 128 --cols 128 --dataflow ws --gemm 512,512,512",),
    "calibrate": ("meshcast calibrate --profile",),
    "devices": ("meshcast devices", "meshcast devices h200"),
    "models": ("meshcast models", "meshcast models llama3-8b"),
    "stacks": ("meshcast stacks", "meshcast stacks megatron"),
    "doctor": ("meshcast doctor", "meshcast doctor --install gpu-compiler"),
    "completion": ("meshcast completion bash > ~/.local/share/bash-completion/completions/meshcast",),
    "tables lists": ("meshcast tables lists", "meshcast tables lists --json"),
    "tables show": (
        "meshcast tables show mlperf-dcnv2 --on h200 --batch 8192",
        "meshcast tables show mlperf-dcnv2 --batch 8192 --json",
    ),
    "tables plan": (
        "meshcast tables plan mlperf-dcnv2 --on dgx-h100 --devices 8 --batch 65536 --model dcnv2 --wire bf16",
    ),
    "validate": ("meshcast validate programs DIR --on h200", "meshcast validate runs FILE.csv"),
    "validate ops": ("meshcast validate ops FILE.csv --fidelity analytical --chip v6e --grade A",),
    "validate compiled": ("meshcast validate compiled DIR --on tpu-v6e",),
    "validate collectives": ("meshcast validate collectives FILE.csv --leave-out each",),
    "validate astra": ("meshcast validate astra FILE.csv",),
    "validate runs": ("meshcast validate runs FILE.csv --only llama --jobs 2",),
    "validate plans": ("meshcast validate plans FILE.csv --any-batch",),
    "validate sets": ("meshcast validate sets data/measured/sets.toml --fidelity profiled",),
    "validate generated": ("meshcast validate generated --graphs 20",),
    "validate torch": ("meshcast validate torch DIR --host 13us",),
    "validate programs": ("meshcast validate programs DIR --on h200 --fidelity analytical --halves",),
    "validate lowering": ("meshcast validate lowering DIR --on h200",),
    "validate intervals": ("meshcast validate intervals DIR --on h200",),
    "validate silicon": ("meshcast validate silicon --on h200,a100-sxm-80gb --ops gemm --sample 100",),
}


def closing(verb: str) -> str | None:
    """What a verb's help ends with; None where there are no examples."""
    lines = EXAMPLES.get(verb, ())
    if not lines:
        return None
    # The mark keeps the parser from joining lines.
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
