"""Predict with the model of a finished run: ``python examples/predict.py RUN [NODE …]``."""

from __future__ import annotations

import sys

from sylvie.predict import predict


def main(run: str, nodes: list[int]) -> None:
    """Print the class of some nodes, and how sure the model is of it."""
    logits = predict(run)
    for node in nodes:
        share, label = logits[node].softmax(0).max(0)
        print(f"node {node}: class {int(label)} ({float(share):.2f})")


if __name__ == "__main__":
    main(sys.argv[1], [int(word) for word in sys.argv[2:]] or list(range(5)))
