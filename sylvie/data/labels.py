"""Labels of any reader in one of two forms: a class a node, or zeros and ones over several classes."""

from __future__ import annotations

import numpy as np

from sylvie.data.arrays import Array, Report


def check_labels(
    labels: Array, num_nodes: int, in_mask: Array, num_classes: int | None, label: str, report: Report
) -> tuple[Array, int, bool]:
    """Labels as int64 [N] or float32 [N, C], the number of classes, and whether there are several a node.

    A column vector is read as classes. −1 or NaN means unlabelled, legal outside ``in_mask`` [N] only. Raises
    ValueError in one line on another shape, or a value that is no class or not 0 or 1.
    """
    y = np.asarray(labels)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim not in (1, 2) or y.shape[0] != num_nodes:
        raise ValueError(
            f"{label}: the labels have shape {y.shape}; one row for each of the {num_nodes} nodes is needed"
        )
    if y.dtype.kind not in "fiub":
        raise ValueError(f"{label}: the labels are of type {y.dtype}; numbers are needed")
    if y.ndim == 2:
        if num_classes is not None and y.shape[1] != num_classes:
            raise ValueError(
                f"{label}: the labels have {y.shape[1]} columns, but {num_classes} classes are stated"
            )
        return _multilabel(y, in_mask, label), int(y.shape[1]), True
    return (*_classes(y, in_mask, num_classes, label, report), False)


def _multilabel(y: Array, in_mask: Array, label: str) -> Array:
    legal = np.isin(y, (0, 1))
    unlabelled = np.isnan(y) if y.dtype.kind == "f" else np.zeros_like(legal)
    wrong = ~(legal | unlabelled | (y == -1))
    wrong |= ~legal & in_mask[:, None]
    if wrong.any():
        node, column = np.argwhere(wrong)[0]
        raise ValueError(
            f"{label}: label {y[node, column]} of node {node}, column {column}, is not 0 or 1 "
            f"(−1 and NaN are legal outside every mask only)"
        )
    return np.where(legal, y, 0).astype(np.float32)


def _classes(
    y: Array, in_mask: Array, num_classes: int | None, label: str, report: Report
) -> tuple[Array, int]:
    if y.dtype.kind == "f":
        filled = np.where(np.isnan(y), -1, y)  # before the cast: NaN has no integer
        if not (np.isfinite(filled).all() and (filled == np.floor(filled)).all()):
            node = int(np.argmax(~np.isfinite(filled) | (filled != np.floor(filled))))
            raise ValueError(
                f"{label}: label {y[node]} of node {node} is not a whole number; classes are needed"
            )
        y = filled
    classes = y.astype(np.int64)
    top = int(classes.max())
    # Without a stated count, more classes than nodes can only be a corrupted label.
    limit = num_classes if num_classes is not None else max(len(classes), 2)
    if int(classes.min()) < -1 or top >= limit:
        node = int(np.argmax((classes < -1) | (classes >= limit)))
        raise ValueError(
            f"{label}: label {classes[node]} of node {node} is out of range; "
            f"classes are 0 to {limit - 1}, −1 = unlabelled"
        )
    missing = (classes == -1) & in_mask
    if missing.any():
        raise ValueError(
            f"{label}: node {int(np.argmax(missing))} is in a mask but has no label (−1 or NaN); "
            f"take the {int(missing.sum())} unlabelled node(s) out of the masks"
        )
    count = num_classes if num_classes is not None else top + 1
    empty = count - int(np.unique(classes[classes >= 0]).size)
    if empty:
        report(f"{label}: {empty} of {count} classes have no labelled node")
    return classes, max(count, 2)
