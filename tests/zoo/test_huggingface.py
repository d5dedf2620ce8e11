"""Hugging Face configurations: the numbers of published files, and mistakes in them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from meshcast.base.errors import InputError, UnsupportedError, UsageError
from meshcast.programs import CaptureOptions, load
from meshcast.zoo import models, num_parameters
from meshcast.zoo.huggingface import builder_of, read_builder
from meshcast.zoo.huggingface.translations import TRANSLATIONS

FOLDER = Path(__file__).parents[1] / "fixtures" / "huggingface"
# The sums over the weights published with each configuration; a model of the zoo where it is the same.
PUBLISHED: dict[str, tuple[int, str | None]] = {
    "DeepSeek-V2-Lite": (15_706_484_224, "deepseek-v2-lite"),
    "DeepSeek-V3": (671_026_419_200, None),  # the file balances its experts more
    "Llama-2-7b": (6_738_415_616, "llama2-7b"),
    "Llama-3.1-405B": (405_853_388_800, "llama3-405b"),
    "Llama-3.1-8B": (8_030_261_248, "llama3-8b"),
    "Llama-3.2-1B": (1_235_814_400, "llama3.2-1b"),
    "Mistral-7B-v0.1": (7_241_732_096, "mistral-7b"),
    "Mixtral-8x7B-v0.1": (46_702_792_704, "mixtral-8x7b"),
    "Phi-3-mini-4k-instruct": (3_821_079_552, None),  # the zoo's has no window
    "OLMo-1B-hf": (1_176_764_416, None),
    "OLMo-2-1124-7B": (7_298_617_344, None),
    "Qwen1.5-MoE-A2.7B": (14_315_784_192, "qwen1.5-moe-a2.7b"),
    "Qwen2.5-7B": (7_615_616_512, "qwen2.5-7b"),
    "Qwen3-30B-A3B": (30_532_122_624, "qwen3-30b-a3b"),
    "Qwen3-8B": (8_190_735_360, "qwen3-8b"),
    "GLM-4-9B-0414": (9_400_094_720, None),
    "GLM-4.5-Air": (106_852_251_264, None),  # without the layer that predicts a further token
    "Kimi-K2-Base": (1_026_408_232_448, None),
    "OLMoE-1B-7B-0924": (6_919_161_856, None),
    "bert-base-uncased": (109_482_240, None),
    "camembert-base": (110_621_952, None),
    "c4ai-command-r7b-12-2024": (8_028_033_024, None),
    "glm-4-9b-chat-hf": (9_399_951_360, None),
    "gpt-j-6b": (6_050_832_384, None),  # less than published by the bias on the logits, as phi-2
    "granite-3.1-8b-base": (8_170_848_256, None),
    "mpt-7b": (6_649_286_656, None),
    "phi-2": (2_779_632_640, None),
    "stablelm-2-1_6b": (1_644_515_328, None),
    "xlm-roberta-base": (278_043_648, None),
    "bloom-560m": (559_214_592, None),
    "c4ai-command-r-v01": (34_980_831_232, None),
    "falcon-7b": (6_921_720_704, None),
    "gemma-2-9b": (9_241_705_984, "gemma2-9b"),
    "gemma-2b": (2_506_172_416, "gemma-2b"),
    "gemma-3-1b-pt": (999_885_952, "gemma3-1b"),
    # Less than the published total by the vision tower and its projector, as for the zoo's.
    "gemma-3-4b-pt": (3_880_263_168, "gemma3-4b"),
    "gpt-oss-20b": (20_914_757_184, None),
    "gpt2": (124_439_808, "gpt2-small"),
    "mamba-130m-hf": (129_135_360, None),
    "opt-125m": (125_239_296, None),
    "opt-350m": (331_196_416, None),
    "pythia-1b": (1_011_781_632, None),
    "resnet-50": (25_557_032, "resnet50"),
    "roberta-base": (124_645_632, None),
    "starcoder2-3b": (3_030_371_328, None),
    "t5-base": (222_903_552, "t5-base"),
    "t5-v1_1-base": (247_577_856, None),
    "vit-base-patch16-224": (86_567_656, None),
}


def values(name: str, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return found | changes


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.json")))
def test_published_configurations(name: str) -> None:
    count, same = PUBLISHED[name]
    builder = read_builder(FOLDER / f"{name}.json")
    assert builder.parameters() == count
    if same:
        assert builder.config == models()[same].config
    _, args, _ = builder(mode="forward")
    if builder.module not in ("bert", "resnet"):  # their forward passes have other parts: a pooler, running statistics
        assert num_parameters(args[0]) == count


def test_every_understood_kind_has_a_published_file() -> None:
    kinds = {values(path.stem)["model_type"] for path in FOLDER.glob("*.json")}
    assert kinds == set(TRANSLATIONS)


def test_the_language_model_of_a_multimodal_one() -> None:
    text = values("gemma-3-1b-pt")
    inner = builder_of({"model_type": "gemma3", "text_config": text}, name="x", where="x")
    assert inner.config == builder_of(text, name="x", where="x").config


def test_a_file_and_its_folder_are_the_same_target(tmp_path: Path) -> None:
    folder = tmp_path / "my-gpt"
    folder.mkdir()
    shutil.copy(FOLDER / "gpt2.json", folder / "config.json")
    settings = {"batch": "2", "seq": "64", "layers": "2"}
    programs = [load(target, CaptureOptions(settings=settings)) for target in (folder, folder / "config.json")]
    assert [program.name for program in programs] == ["my-gpt", "my-gpt"]
    assert programs[0].text == programs[1].text
    decode = load(folder, CaptureOptions(settings={"mode": "decode", "context": "64", "layers": "2"}))
    assert decode.text != programs[0].text


def test_settings_and_a_mesh_apply() -> None:
    target = FOLDER / "Qwen3-8B.json"
    options = CaptureOptions(settings={"mode": "prefill", "seq": "64", "layers": "1"}, mesh={"data": 2, "tensor": 4})
    assert load(target, options).devices == 8
    with pytest.raises(UsageError, match="no setting 'sequence'"):
        load(target, CaptureOptions(settings={"sequence": "64"}))
    with pytest.raises(UsageError, match="no mode 'sample'"):
        load(target, CaptureOptions(settings={"mode": "sample"}))


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"model_type": "whisper"}, UnsupportedError, r"(?s)'whisper'.*fix: supported: .*llama.*vit"),
        # Names of other models, not misspellings of these.
        ({"model_type": "llava"}, UnsupportedError, r"(?s)'llava'.*fix: supported"),
        ({"model_type": "falcon2"}, UnsupportedError, r"(?s)'falcon2'.*fix: supported"),
        ({"model_type": "gpt_neo"}, UnsupportedError, r"(?s)'gpt_neo'.*fix: supported"),
        ({"model_type": "lama"}, UnsupportedError, r"did you mean 'llama'"),
        ({"model_type": None}, InputError, "no model_type"),
        ({"num_hidden_layers": None}, InputError, "needs the key 'num_hidden_layers'"),
        ({"num_hidden_layers": "many"}, InputError, "num_hidden_layers is 'many'"),
        ({"num_hidden_layers": 0}, InputError, "num_hidden_layers is 0, not a whole number from 1"),
        ({"num_hidden_layers": -1}, InputError, "num_hidden_layers is -1, not a whole number from 1"),
        ({"hidden_size": 10**30}, InputError, "hidden_size is 10+, not a whole number from 1 to 2147483647"),
        ({"hidden_size": None, "hiden_size": 4096}, InputError, "is 'hiden_size' meant to be it"),
        ({"rope_theta": float("nan")}, InputError, "rope_theta is nan, not a finite number"),
        (
            {"model_type": "qwen3", "attention_bias": True},
            UnsupportedError,
            "attention_bias=True of qwen3 is not modelled",
        ),
        ({"hidden_act": "relu2"}, UnsupportedError, "hidden_act='relu2'"),
        ({"num_key_value_heads": 5}, InputError, "heads=32 is not divisible by kv_heads=5"),
        ({"tie_word_embeddings": "no"}, InputError, "neither true nor false"),
        ({"rope_theta": "big"}, InputError, "rope_theta is 'big'"),
    ],
)
def test_mistakes_are_named(changed: dict[str, Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        builder_of(values("Llama-3.1-8B", **changed), name="x", where="config.json")


def test_other_shapes_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="hidden_sizes"):
        builder_of(values("resnet-50", hidden_sizes=[64, 128, 256, 512]), name="x", where="x")
    with pytest.raises(InputError, match="not a list of positive whole numbers"):
        builder_of(values("resnet-50", depths=50), name="x", where="x")
    with pytest.raises(InputError, match="text_config is 3"):
        builder_of({"model_type": "gemma3", "text_config": 3}, name="x", where="x")


def test_layers_are_local_as_the_file_says() -> None:
    text = values(
        "gemma-3-1b-pt", layer_types=(["sliding_attention"] * 2 + ["full_attention"]) * 8 + ["sliding_attention"] * 2
    )
    assert builder_of(text, name="x", where="x").config.global_every == 3
    whole = builder_of(text | {"layer_types": ["full_attention"] * 26}, name="x", where="x").config
    assert (whole.window, whole.global_every) == (0, 0)
    with pytest.raises(UnsupportedError, match="do not alternate evenly"):
        builder_of(text | {"layer_types": ["full_attention"] * 13 + ["sliding_attention"] * 13}, name="x", where="x")
    with pytest.raises(InputError, match="layer_types has 2 layers, num_hidden_layers=26"):
        builder_of(text | {"layer_types": ["full_attention"] * 2}, name="x", where="x")
    with pytest.raises(InputError, match="not a list of words"):
        builder_of(text | {"layer_types": 3}, name="x", where="x")


def test_weights_in_fewer_bits_are_read_so_in_inference() -> None:
    awq = builder_of(
        values("Llama-3.1-8B", quantization_config={"quant_method": "awq", "bits": 4}), name="x", where="x"
    )
    assert "(awq, 4 bits)" in awq.notes[0]
    assert awq.overrides("decode")["weight_dtype"] == "int4"
    assert "weight_dtype" not in awq.overrides("train")
    fp8 = builder_of(values("Llama-3.1-8B", quantization_config={"quant_method": "fp8"}), name="x", where="x")
    assert fp8.overrides("prefill")["weight_dtype"] == "float8_e4m3fn"
    assert read_builder(FOLDER / "gpt-oss-20b.json").overrides("decode")["weight_dtype"] == "int4"  # mxfp4
    assert not read_builder(FOLDER / "Llama-3.1-8B.json").notes
    gpt = builder_of(values("gpt2", quantization_config={"quant_method": "awq", "bits": 4}), name="x", where="x")
    assert "(awq, 4 bits) is not modelled" in gpt.notes[0]
    assert not gpt.presets


def test_biases_of_llama() -> None:
    """4096 for queries and the output, 1024 for keys and values; two of 14336 and one of 4096 in the other half."""
    plain, biased = (
        builder_of(values("Llama-3.1-8B", attention_bias=on, mlp_bias=on), name="x", where="x").parameters()
        for on in (False, True)
    )
    assert biased - plain == 32 * (2 * 4096 + 2 * 1024 + 2 * 14336 + 4096)


def test_a_larger_falcon_has_two_norms_and_few_key_heads() -> None:
    larger = values(
        "falcon-7b", new_decoder_architecture=True, num_kv_heads=8, num_attention_heads=128, hidden_size=8192,
        num_hidden_layers=60,
    )  # fmt: skip
    assert builder_of(larger, name="x", where="x").parameters() == 41_303_293_952


def test_a_larger_gpt_oss() -> None:
    larger = values("gpt-oss-20b", num_hidden_layers=36, num_local_experts=128, layer_types=None)
    assert builder_of(larger, name="x", where="x").parameters() == 116_829_156_672


def test_classes_that_a_file_does_not_name_are_two() -> None:
    labelled = values("vit-base-patch16-224")
    del labelled["num_labels"]
    assert builder_of(labelled, name="x", where="x").config.classes == 2


def test_an_encoder_that_decodes_is_another_program() -> None:
    with pytest.raises(UnsupportedError, match="is_decoder=True of bert"):
        builder_of(values("bert-base-uncased", is_decoder=True), name="x", where="x")


def test_what_is_no_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"model_type": \n oops}')
    with pytest.raises(InputError, match=r"config.json:2:\d+: is not JSON"):
        load(path)
    path.write_text("[1, 2]")
    with pytest.raises(InputError, match="no Hugging Face configuration"):
        load(tmp_path)
    path.unlink()
    with pytest.raises(InputError, match=r"folder, not a program: it has no config\.json"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "changed", "activation"),
    [
        ("Llama-3.1-8B", {}, "silu"),
        ("Llama-3.1-8B", {"hidden_act": "gelu"}, "exact_gelu"),
        ("Llama-3.1-8B", {"hidden_act": "gelu_new"}, "gelu"),
        ("pythia-1b", {"hidden_act": "gelu"}, "exact_gelu"),
        ("pythia-1b", {"hidden_act": "gelu_fast"}, "gelu"),
        ("gpt2", {"activation_function": "gelu"}, "exact_gelu"),
        ("gpt2", {"activation_function": "gelu_pytorch_tanh"}, "gelu"),
        # Gemma's own key goes before; without it "gelu" is the tanh form.
        ("gemma-2b", {"hidden_act": "gelu", "hidden_activation": None}, "gelu"),
        ("gemma-2b", {"hidden_act": "silu", "hidden_activation": None}, "silu"),
        ("gemma-2-9b", {"hidden_act": "silu", "hidden_activation": "gelu"}, "exact_gelu"),
    ],
)
def test_one_word_is_one_activation(name: str, changed: dict[str, Any], activation: str) -> None:
    assert builder_of(values(name, **changed), name="x", where="x").config.activation == activation


def test_activations_that_a_family_lacks_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="activation_function='silu' of gpt2 is not modelled"):
        builder_of(values("gpt2", activation_function="silu"), name="x", where="x")
