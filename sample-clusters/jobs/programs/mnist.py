"""MultiWorkerMirroredStrategy on digits, with a training loop of its own: any Keras, or none.

Without the data set it takes made-up pictures, and says so.
"""

import argparse
import json
import os
import time

import numpy as np
import tensorflow as tf

RATE = 0.1


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
    batch = options.batch * len(workers)
    data = tf.data.Dataset.from_tensor_slices((images.astype("float32"), labels.astype("int64")))
    data = data.shuffle(len(images), seed=0).batch(batch, drop_remainder=True).repeat()
    with strategy.scope():
        weights = first_weights()
    step = training_step(strategy, weights, batch)
    feed = iter(strategy.experimental_distribute_dataset(data))
    steps = len(images) // batch
    for epoch in range(options.epochs):
        began, loss, right = time.monotonic(), 0.0, 0.0
        for _ in range(steps):
            found = step(next(feed))
            loss, right = loss + float(found[0]), right + float(found[1])
        speed = steps * batch / (time.monotonic() - began)
        print(
            f"epoch {epoch + 1}/{options.epochs} step {(epoch + 1) * steps}/{options.epochs * steps}"
            f" loss: {loss / steps:.4f} accuracy: {right / steps:.4f} {speed:.0f} images/s",
            flush=True,
        )


def first_weights() -> list[tf.Variable]:
    """A convolution and a dense layer."""
    random = tf.random.Generator.from_seed(1)
    shapes = ((3, 3, 1, 16), (16,), (13 * 13 * 16, 10), (10,))
    return [
        tf.Variable(random.normal(shape, stddev=0.05) if len(shape) > 1 else tf.zeros(shape))
        for shape in shapes
    ]


def training_step(strategy: tf.distribute.Strategy, weights: list[tf.Variable], batch: int):
    """A function that trains all workers on their parts of a batch; it returns loss and accuracy.

    It uses TensorFlow alone: Keras 3 cannot train with this strategy, and Keras 2 may be missing.
    """

    def on_worker(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        with tf.GradientTape() as tape:
            hidden = tf.nn.relu(tf.nn.conv2d(images, weights[0], 1, "VALID") + weights[1])
            pooled = tf.nn.max_pool2d(hidden, 2, 2, "VALID")
            scores = tf.matmul(tf.reshape(pooled, (-1, 13 * 13 * 16)), weights[2]) + weights[3]
            each = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores)
            loss = tf.reduce_sum(each) / batch
        # The gradients of all workers are added: each loss is divided by the whole batch.
        context = tf.distribute.get_replica_context()
        grown = context.all_reduce(tf.distribute.ReduceOp.SUM, tape.gradient(loss, weights))
        for weight, gradient in zip(weights, grown):  # noqa: B905
            weight.assign_sub(RATE * gradient)
        right = tf.reduce_sum(tf.cast(tf.argmax(scores, 1) == labels, tf.float32)) / batch
        return loss, right

    @tf.function
    def step(pair: tuple[tf.Tensor, tf.Tensor]) -> list[tf.Tensor]:
        found = strategy.run(on_worker, args=pair)
        return [strategy.reduce(tf.distribute.ReduceOp.SUM, one, axis=None) for one in found]

    return step


if __name__ == "__main__":
    main()
