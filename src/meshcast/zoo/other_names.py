"""Other names under which people know models of the zoo: other spellings, releases of the same shape, Hugging Face's ids."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Releases whose shape is that of a model in the zoo (each release's config.json on Hugging Face), and short names that have one
# published meaning there.
SAME_SHAPE = {
    "gpt2": "gpt2-small",
    "gpt2-1.5b": "gpt2-xl",
    "gpt3": "gpt3-175b",
    "llama3.1-8b": "llama3-8b",
    "llama3.1-70b": "llama3-70b",
    "llama3.3-70b": "llama3-70b",
    "llama3.1-405b": "llama3-405b",
    "mistral-7b-v0.1": "mistral-7b",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "mixtral-8x22b-v0.1": "mixtral-8x22b",
    "phi3-mini-4k": "phi3-mini",
    "qwen2-0.5b": "qwen2.5-0.5b",
    "qwen2-1.5b": "qwen2.5-1.5b",
    "qwen2-7b": "qwen2.5-7b",
    "deepseek-r1": "deepseek-v3",
    "bert-base-uncased": "bert-base",
    "bert-large-uncased": "bert-large",
    "flan-t5-xl": "t5-v1.1-xl",
    "flan-t5-xxl": "t5-v1.1-xxl",
    "t5-xl": "t5-v1.1-xl",
    "t5-xxl": "t5-v1.1-xxl",
    "gnmt-v2": "gnmt",
    "transformer": "transformer-big",
    "transformer-wmt": "transformer-big",
    "mask-rcnn-resnet50": "mask-rcnn",
    "mask-rcnn-resnet50-fpn": "mask-rcnn",
    "retinanet-resnext50": "retinanet",
    "ssd-retinanet": "retinanet",
    "3d-unet": "unet3d",
    "nnunet": "unet3d",
    "ssd": "ssd300-resnet34",
    "ssd300": "ssd300-resnet50",
    "ssd-resnet50": "ssd300-resnet50",
    "ssd-resnet34": "ssd300-resnet34",
    "stable-diffusion": "unet-sd15",
    "stable-diffusion-1.5": "unet-sd15",
    "stable-diffusion-v1.5": "unet-sd15",
    "stable-diffusion-2": "unet-sd2",
    "stable-diffusion-v2": "unet-sd2",
    "stable-diffusion-v2-base": "unet-sd2",
    "sd-v2": "unet-sd2",
    "flux": "flux.1-dev",
    "flux-12b": "flux.1-dev",
    "flux.1": "flux.1-dev",
    "flux-dev": "flux.1-dev",
    "flux1-dev": "flux.1-dev",
    "flux-schnell": "flux.1-schnell",
    "flux1-schnell": "flux.1-schnell",
    "stable-diffusion-3": "sd3-medium",
    "stable-diffusion-3-medium": "sd3-medium",
    "sd3": "sd3-medium",
    "stable-diffusion-xl": "unet-sdxl",
    "stable-diffusion-xl-base-1.0": "unet-sdxl",
    "sdxl": "unet-sdxl",
    "sdxl-base": "unet-sdxl",
    "sd2": "unet-sd2",
    "sd1.5": "unet-sd15",
    "stable-diffusion-v1-5": "unet-sd15",
    "pixart": "pixart-alpha",
    "pixart-xl-2": "pixart-alpha",
    "wan": "wan2.1-14b",
    "wan-1.3b": "wan2.1-1.3b",
    "wan-14b": "wan2.1-14b",
    "wan2.1-t2v-1.3b": "wan2.1-1.3b",
    "wan2.1-t2v-14b": "wan2.1-14b",
    "wan2.2-a14b": "wan2.1-14b",
    "nemotron-h-8b-base-8k": "nemotron-h-8b",
    "nemotron-h-56b-base-8k": "nemotron-h-56b",
    "nemotron-nano-v2-9b": "nemotron-nano-9b-v2",
    "nvidia-nemotron-nano-9b-v2": "nemotron-nano-9b-v2",
    "convnext-t": "convnext-tiny",
    "convnext-s": "convnext-small",
    "convnext-b": "convnext-base",
    "convnext-l": "convnext-large",
    "convnext-xl": "convnext-xlarge",
    "swin-t": "swin-tiny",
    "swin-s": "swin-small",
    "swin-b": "swin-base",
    "swin-l": "swin-large",
    "swin-v2-t": "swinv2-tiny",
    "swin-v2-s": "swinv2-small",
    "swin-v2-b": "swinv2-base",
    "deit-ti": "vit-ti16",
    "deit-tiny": "vit-ti16",
    "deit-s": "vit-s16",
    "deit-small": "vit-s16",
    "deit-b": "vit-b16",
    "deit-base": "vit-b16",
    "vit-small": "vit-s16",
    "vit-s": "vit-s16",
    "vit-b": "vit-b16",
    "vit-l": "vit-l16",
    "vit-h": "vit-h14",
    "vit-giant": "vit-g14",
    "vit-g": "vit-g14",
    "vit-base": "vit-b16",
    "vit-base-16": "vit-b16",
    "vit-large": "vit-l16",
    "vit-large-16": "vit-l16",
    "vit-huge": "vit-h14",
    "vit-base-patch16-224": "vit-b16",
    "vit-large-patch16-224": "vit-l16",
}
# Who publishes these models on Hugging Face: elsewhere a name with a slash is a path.
PUBLISHERS = frozenset(
    [
        "deepseek-ai",
        "google",
        "google-bert",
        "google-t5",
        "meta-llama",
        "microsoft",
        "mistralai",
        "openai-community",
        "black-forest-labs",
        "nvidia",
        "qwen",
        "stabilityai",
        "state-spaces",
        "wan-ai",
    ]
)
# What a tuned or converted release adds to the name of its base, whose shape it has.
_TUNED = ("-instruct-v0.1", "-instruct", "-chat", "-it", "-hf")


def spelling(name: str) -> str:
    """A name without what people write differently: capitals, and the dashes, underscores and spaces between its parts."""
    return "".join(letter for letter in name.lower() if letter not in "-_ ")


def _unpointed(name: str) -> str:
    """The same without points, but for those of a size: `1.5b` is not `15b`."""
    return spelling(re.sub(r"\.(?!\d+[bm]\b)", "", name.lower()))


def known_as(name: str, models: Iterable[str]) -> str | None:
    """The model of the zoo that goes by another name; None where there is none, or more than one.

    `Llama-3.1-8B`, `llama_3_8b` and `meta-llama/Llama-3.1-8B-Instruct` are all `llama3-8b`.
    """
    # ViT-B/16, DiT-XL/2: a number behind a slash is a patch's side, and no model of a publisher's.
    name = re.sub(r"/(\d+)$", r"\1", name)
    publisher, slash, rest = name.rpartition("/")
    if slash and publisher.lower() not in PUBLISHERS:
        return None
    wanted = rest.lower().removeprefix("meta-") if slash else rest.lower()
    for tuned in _TUNED:
        wanted = wanted.removesuffix(tuned)
    ours = tuple(models)
    # Points as they are written first: MLPerf's `llama31_405b` has none.
    for spelt in (spelling, _unpointed):
        found = {model for model in ours if spelt(model) == spelt(wanted)}
        found |= {model for other, model in SAME_SHAPE.items() if spelt(other) == spelt(wanted) and model in ours}
        if found:
            return found.pop() if len(found) == 1 else None
    return None
