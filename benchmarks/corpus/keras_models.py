"""Keras on JAX: its applications, and networks after its examples, by stateless steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import keras
from keras import layers

from benchmarks.corpus.record import Call, Catalogue
from benchmarks.corpus.shapes import integers, spec

KERAS = Catalogue("keras", "library", "vision")
CATALOGUES = [KERAS]
POLICIES = {"int8": "float32", "f32": "float32", "mixed": "mixed_bfloat16", "bf16": "bfloat16", "f16": "mixed_float16"}


def variables(every: Any) -> list[Any]:
    """The shapes of Keras variables."""
    return [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in every]


def step_of(model: Any, loss: Any, inputs: Any, targets: Any, optimizer: Any = None) -> Call:
    """A training step of a Keras model without state of its own, as its guide for custom loops has it."""
    optimizer = optimizer or keras.optimizers.Adam(1e-3)
    if keras.config.dtype_policy().name == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    optimizer.build(model.trainable_variables)

    def lossy(trainable: Any, other: Any, state: Any, x: Any, y: Any) -> Any:
        outputs, other = model.stateless_call(trainable, other, x, training=True)
        value = loss(y, outputs)
        scaled = optimizer.stateless_scale_loss(state, value) if hasattr(optimizer, "stateless_scale_loss") else value
        return scaled, (other, value)

    def step(trainable: Any, other: Any, state: Any, x: Any, y: Any) -> Any:
        (_, (other, value)), grads = jax.value_and_grad(lossy, has_aux=True)(trainable, other, state, x, y)
        trainable, state = optimizer.stateless_apply(state, grads, trainable)
        return trainable, other, state, value

    return step, (
        variables(model.trainable_variables),
        variables(model.non_trainable_variables),
        variables(optimizer.variables),
        inputs,
        targets,
    )


def inference_of(model: Any, inputs: Any) -> Call:
    """A Keras model's inference."""
    arguments = variables(model.trainable_variables), variables(model.non_trainable_variables), inputs
    return (lambda trainable, other, x: model.stateless_call(trainable, other, x, training=False)[0]), arguments


def under(policy: str, make: Callable[[], Call], *, traced: bool = True) -> Call:
    """What a function makes under a dtype policy, from a fresh Keras session.

    Variables are made while tracing, so that nothing is initialised: a stateless call asks none of them for its value. A model
    that asks for values while it is made is made without.
    """
    keras.utils.clear_session(free_memory=True)
    keras.config.set_dtype_policy(POLICIES[policy])
    if not traced:
        return make()
    made: list[Call] = []
    jax.eval_shape(lambda: made.append(make()))
    return made[0]


# Applications that keep arrays which are no variables; quantising reads weights as numbers, too.
ASKING = ("EfficientNet", "ConvNeXt")


def classes(y: Any, outputs: Any) -> Any:
    """Mean cross-entropy of integer labels against probabilities."""
    return keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, outputs))


def application(name: str, mode: str, batch: int, size: int) -> Call:
    """One of Keras' applications, classifying images into a thousand classes."""
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3), classes=1000)
    images = spec(batch, size, size, 3)
    if mode == "infer":
        return inference_of(model, images)
    return step_of(model, classes, images, integers(1000, batch), keras.optimizers.SGD(0.1, momentum=0.9))


for name, mode, dtype, batch, size in (
    ("EfficientNetB0", "train", "mixed", 64, 224),
    ("DenseNet121", "train", "f32", 32, 224),
    ("Xception", "train", "mixed", 32, 299),
    ("ConvNeXtTiny", "train", "f32", 16, 224),
    ("ResNet50", "train", "f16", 64, 224),
    ("MobileNetV3Small", "train", "f32", 128, 224),
    ("InceptionV3", "train", "bf16", 32, 299),
    ("MobileNet", "infer", "f32", 128, 224),
    ("MobileNetV3Large", "infer", "bf16", 128, 224),
    ("ResNet101V2", "infer", "f32", 32, 224),
    ("EfficientNetV2B0", "infer", "bf16", 64, 224),
    ("InceptionResNetV2", "infer", "mixed", 32, 299),
    ("ConvNeXtSmall", "infer", "bf16", 64, 224),
    ("VGG19", "infer", "f32", 16, 224),
    ("DenseNet169", "infer", "f32", 16, 224),
    ("ResNet152", "train", "mixed", 32, 224),
    ("NASNetLarge", "infer", "mixed", 16, 331),
    ("EfficientNetB3", "infer", "f32", 32, 300),
    ("VGG16", "train", "f32", 32, 224),
):
    KERAS.add(
        f"keras_{name.lower()}_{mode}",
        partial(under, dtype, partial(application, name, mode, batch, size), traced=not name.startswith(ASKING)),
        mode,
        dtype,
    )


def example(id: str, mode: str, dtype: str, group: str) -> Callable[[Callable[[], Call]], Callable[[], Call]]:
    """A decorator for a network after one of Keras' examples."""

    def added(make: Callable[[], Call]) -> Callable[[], Call]:
        KERAS.add(id, partial(under, dtype, make, traced=dtype != "int8"), mode, dtype, group=group, origin="example")
        return make

    return added


def encoder(x: Any, heads: int, width: int) -> Any:
    """A block of attention and a feed-forward network, normalised before."""
    normal = layers.LayerNormalization()(x)
    x = x + layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(normal, normal)
    hidden = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
    return x + layers.Dropout(0.1)(layers.Dense(width)(hidden))


class Places(layers.Layer):
    """Adds a learned vector to each place of a sequence."""

    def build(self, shape: Any) -> None:
        """Makes the table."""
        self.table = self.add_weight(shape=shape[1:], initializer="uniform")

    def call(self, x: Any) -> Any:
        """The sequence with its places."""
        return x + self.table


@example("keras_text_transformer_train", "train", "mixed", "sequence")
def _() -> Call:
    tokens = keras.Input((256,), dtype="int32")
    x = Places()(layers.Embedding(20000, 256)(tokens))
    for _ in range(4):
        x = encoder(x, 8, 256)
    model = keras.Model(
        tokens, layers.Dense(2, activation="softmax", dtype="float32")(layers.GlobalAveragePooling1D()(x))
    )
    return step_of(model, classes, integers(20000, 64, 256), integers(2, 64))


@example("keras_gru_attention_infer", "infer", "f32", "sequence")
def _() -> Call:
    series = keras.Input((168, 32))
    x = layers.GRU(256, return_sequences=True)(series)
    x = layers.Attention()([x, x])
    model = keras.Model(series, layers.Dense(24)(layers.Flatten()(x)))
    return inference_of(model, spec(128, 168, 32))


@example("keras_unet_segmentation_train", "train", "mixed", "vision")
def _() -> Call:
    images = keras.Input((160, 160, 3))
    x = layers.Activation("relu")(layers.BatchNormalization()(layers.Conv2D(32, 3, strides=2, padding="same")(images)))
    for width in (64, 128, 256):
        before = layers.Conv2D(width, 1, strides=2, padding="same")(x)
        for _ in range(2):
            x = layers.BatchNormalization()(
                layers.SeparableConv2D(width, 3, padding="same")(layers.Activation("relu")(x))
            )
        x = layers.MaxPooling2D(3, strides=2, padding="same")(x) + before
    for width in (256, 128, 64, 32):
        before = layers.Conv2D(width, 1, padding="same")(layers.UpSampling2D(2)(x))
        for _ in range(2):
            x = layers.BatchNormalization()(
                layers.Conv2DTranspose(width, 3, padding="same")(layers.Activation("relu")(x))
            )
        x = layers.UpSampling2D(2)(x) + before
    model = keras.Model(images, layers.Conv2D(3, 3, activation="softmax", padding="same", dtype="float32")(x))
    return step_of(model, classes, spec(32, 160, 160, 3), integers(3, 32, 160, 160))


@example("keras_convlstm_frames_train", "train", "f32", "sequence")
def _() -> Call:
    frames = keras.Input((10, 64, 64, 1))
    x = frames
    for kernel in (5, 3, 1):
        x = layers.BatchNormalization()(
            layers.ConvLSTM2D(32, kernel, padding="same", return_sequences=True, activation="relu")(x)
        )
    model = keras.Model(frames, layers.Conv3D(1, 3, activation="sigmoid", padding="same")(x))

    def binary(y: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.losses.binary_crossentropy(y, outputs))

    return step_of(model, binary, spec(8, 10, 64, 64, 1), spec(8, 10, 64, 64, 1))


@example("keras_deep_cross_tabular_train", "train", "f32", "recsys")
def _() -> Call:
    numbers, fields = keras.Input((13,)), keras.Input((26,), dtype="int32")
    x = layers.Concatenate()([numbers, layers.Flatten()(layers.Embedding(200000, 32)(fields))])
    cross = x
    for _ in range(3):
        cross = cross + x * layers.Dense(x.shape[-1])(cross)
    deep = layers.Dropout(0.2)(layers.Dense(512, activation="relu")(layers.Dense(1024, activation="relu")(x)))
    model = keras.Model([numbers, fields], layers.Dense(1)(layers.Concatenate()([cross, deep])))

    def binary(y: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.losses.binary_crossentropy(y, outputs, from_logits=True))

    data = [spec(8192, 13), integers(200000, 8192, 26)]
    return step_of(model, binary, data, spec(8192, 1), keras.optimizers.Adagrad(0.01))


@example("keras_wavenet_residual_infer", "infer", "bf16", "audio")
def _() -> Call:
    signal = keras.Input((16000, 1))
    x = layers.Conv1D(64, 2, padding="causal")(signal)
    for power in range(10):
        gated = layers.Conv1D(64, 2, padding="causal", dilation_rate=2**power, activation="tanh")(x)
        gate = layers.Conv1D(64, 2, padding="causal", dilation_rate=2**power, activation="sigmoid")(x)
        x = x + layers.Conv1D(64, 1)(gated * gate)
    model = keras.Model(signal, layers.Conv1D(256, 1, activation="softmax")(x))
    return inference_of(model, spec(8, 16000, 1))


@example("keras_augmented_cnn_train", "train", "f32", "vision")
def _() -> Call:
    images = keras.Input((128, 128, 3))
    x = images
    for augment in (
        layers.RandomFlip(),
        layers.RandomRotation(0.1),
        layers.RandomZoom(0.1),
        layers.RandomContrast(0.1),
    ):
        x = augment(x)
    for width in (32, 64, 128):
        x = layers.MaxPooling2D()(
            layers.GroupNormalization(8)(layers.Conv2D(width, 3, activation="silu", padding="same")(x))
        )
    model = keras.Model(images, layers.Dense(10, activation="softmax")(layers.GlobalMaxPooling2D()(x)))
    return step_of(model, classes, spec(64, 128, 128, 3), integers(10, 64), keras.optimizers.Lion(1e-4))


@example("keras_int8_quantized_mlp_infer", "infer", "int8", "misc")
def _() -> Call:
    model = keras.Sequential(
        [keras.Input((2048,)), *[layers.Dense(2048, activation="relu") for _ in range(4)], layers.Dense(1000)]
    )
    model.quantize("int8")
    return inference_of(model, spec(512, 2048))


@example("keras_autoencoder_denoising_train", "train", "f32", "vision")
def _() -> Call:
    images = keras.Input((128, 128, 1))
    x = images
    for width in (32, 64):
        x = layers.MaxPooling2D(padding="same")(layers.Conv2D(width, 3, activation="relu", padding="same")(x))
    for width in (64, 32):
        x = layers.Conv2DTranspose(width, 3, strides=2, activation="relu", padding="same")(x)
    model = keras.Model(images, layers.Conv2D(1, 3, activation="sigmoid", padding="same")(x))

    def binary(y: Any, outputs: Any) -> Any:
        return keras.ops.mean(keras.losses.binary_crossentropy(y, outputs))

    return step_of(model, binary, spec(128, 128, 128, 1), spec(128, 128, 128, 1))


@example("keras_timeseries_transformer_train", "train", "f32", "sequence")
def _() -> Call:
    series = keras.Input((500, 1))
    x = series
    for _ in range(4):
        attended = layers.MultiHeadAttention(4, 256, dropout=0.25)(x, x)
        x = layers.LayerNormalization()(layers.Dropout(0.25)(attended)) + x
        hidden = layers.Dropout(0.25)(layers.Conv1D(4, 1, activation="relu")(x))
        x = layers.LayerNormalization()(layers.Conv1D(1, 1)(hidden)) + x
    x = layers.Dense(128, activation="relu")(layers.GlobalAveragePooling1D(data_format="channels_first")(x))
    model = keras.Model(series, layers.Dense(2, activation="softmax")(layers.Dropout(0.4)(x)))
    return step_of(model, classes, spec(64, 500, 1), integers(2, 64))


@example("keras_video_cnn_gru_infer", "infer", "mixed", "vision")
def _() -> Call:
    frames = keras.Input((16, 112, 112, 3))
    x = frames
    for width, stride in ((32, 2), (64, 2), (128, 2)):
        x = layers.TimeDistributed(layers.Conv2D(width, 3, strides=stride, padding="same", activation="relu"))(x)
    x = layers.TimeDistributed(layers.GlobalAveragePooling2D())(x)
    x = layers.Bidirectional(layers.GRU(128))(x)
    return inference_of(keras.Model(frames, layers.Dense(101, activation="softmax")(x)), spec(32, 16, 112, 112, 3))
