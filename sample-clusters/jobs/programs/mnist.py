"""MultiWorkerMirroredStrategy on digits.

Without the data set it takes made-up pictures, and says so.
"""

import argparse
import json
import os

import numpy as np
import tensorflow as tf


def pictures(path: str) -> tuple[np.ndarray, np.ndarray]:
    """MNIST from a local mnist.npz, else bright squares whose place is the class."""
    if path:
        with np.load(path) as data:
            return data["x_train"][..., None] / 255.0, data["y_train"]
    print("no --data FILE: made-up pictures instead of MNIST", flush=True)
    random = np.random.default_rng(0)
    labels = random.integers(0, 10, 6000)
    images = random.random((6000, 28, 28, 1)) * 0.3
    for image, label in zip(images, labels):  # noqa: B905
        row, column = divmod(int(label), 4)
        image[row * 9 : row * 9 + 7, column * 7 : column * 7 + 7] += 0.7
    return images, labels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--data", default="", help="a local mnist.npz")
    options = parser.parse_args()
    task = json.loads(os.environ["TF_CONFIG"])
    workers = task["cluster"]["worker"]
    print(
        f"worker {task['task']['index']} of {len(workers)}: {', '.join(workers)}",
        flush=True,
    )
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    images, labels = pictures(options.data)
    data = tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels.astype("int64")))
    data = data.shuffle(6000, seed=0).batch(options.batch * len(workers)).repeat()
    with strategy.scope():
        model = tf.keras.Sequential([
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(10),
        ])  # fmt: skip
        loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer="adam", loss=loss, metrics=["accuracy"])
    steps = len(images) // (options.batch * len(workers))
    model.fit(data, epochs=options.epochs, steps_per_epoch=steps, verbose=2)


if __name__ == "__main__":
    main()
