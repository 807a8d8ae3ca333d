"""Write the modules of TensorFlow in this folder, and what its tape says of them.

    pip install tensorflow-cpu==2.21.0
    python tests/files/tensorflow/write.py

Each module has a scalar result; its arguments are an array and the variables of the model.
"""

import json
import re
from pathlib import Path

import numpy as np
import tensorflow as tf

FOLDER = Path(__file__).parent
LOCATION = re.compile(r" loc\([^()]*\)")
layers = tf.keras.layers


def array(*shape):
    return tf.constant(np.random.default_rng(0).standard_normal(shape), tf.float32)


def weighed(y):
    """A sum in which each element has a weight of its own."""
    numbers = 1.0 + np.arange(np.prod(y.shape))
    return tf.reduce_sum(y * np.sin(numbers).reshape(y.shape).astype("f"))


def of_layers(*parts):
    model = tf.keras.Sequential(parts)
    return lambda x: weighed(model(x, training=False))


def attention():
    attend = layers.MultiHeadAttention(2, 2)
    return lambda x: weighed(attend(x, x))


def symmetric(x):
    return x @ tf.transpose(x) + tf.eye(x.shape[0])


def eigh(x):
    values, vectors = tf.linalg.eigh(symmetric(x))
    return weighed(values) + weighed(vectors**2)


def grown_until_large(x):
    def is_small(y):
        return tf.reduce_sum(y**2) < 99.0

    return weighed(tf.while_loop(is_small, lambda y: [2 * y + tf.sin(y)], [x])[0])


MODELS = {
    "erf": (lambda x: weighed(x * tf.math.erf(x)), array(4)),
    "gelu": (of_layers(layers.Dense(3, "gelu"), layers.LayerNormalization()), array(2, 3)),
    "convolution": (
        of_layers(
            layers.Conv2D(2, 3, activation="selu"),
            layers.BatchNormalization(),
            layers.MaxPool2D(),
            layers.Flatten(),
            layers.Dense(2, "softmax"),
        ),
        array(1, 6, 6, 1),
    ),
    "lstm": (of_layers(layers.LSTM(2)), array(1, 3, 2)),
    "attention": (attention(), array(1, 3, 4)),
    "cholesky": (lambda x: weighed(tf.linalg.cholesky(symmetric(x))), array(3, 3)),
    "solve": (lambda x: weighed(tf.linalg.solve(symmetric(x), x)), array(3, 3)),
    "eigh": (eigh, array(3, 3)),
    "while": (grown_until_large, array(4)),
}


def write(name, function, x):
    function(x)  # makes the variables
    jitted = tf.function(lambda x: function(x), jit_compile=True, autograph=False)
    text = jitted.experimental_get_compiler_ir(x)(stage="stablehlo")
    graph = jitted.get_concrete_function(x)
    known = {id(variable.handle): variable for variable in graph.graph.variables}
    variables = [known[id(handle)] for handle in graph.captured_inputs]
    with tf.GradientTape() as tape:
        tape.watch(x)
        value = function(x)
    found = tape.gradient(value, [x, *variables])
    lines = [line for line in LOCATION.sub("", text).splitlines() if not line.startswith("#loc")]
    (FOLDER / f"{name}.mlir").write_text("\n".join(lines) + "\n")
    said = {
        "arguments": [each.numpy().tolist() for each in (x, *variables)],
        "value": float(value),
        "gradients": [None if each is None else each.numpy().tolist() for each in found],
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(said) + "\n")


if __name__ == "__main__":
    tf.random.set_seed(0)
    for name, (function, x) in MODELS.items():
        write(name, function, x)
