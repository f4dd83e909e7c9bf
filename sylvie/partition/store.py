"""Partitions on disk: one safetensors file a rank, one for the boundary pool, one JSON manifest.

A store appears whole or not at all: it is written to a temporary folder beside its place and renamed. A
rank reads its own file and the pool.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from sylvie.data.graph import SparseRows
from sylvie.partition.manifest import FORMAT_VERSION, MANIFEST_NAME, POOL_NAME, Manifest, read_manifest
from sylvie.partition.partition import BoundaryPool, Partition

_FIELDS = dataclasses.fields(Partition)
_SCALARS = tuple(field.name for field in _FIELDS if field.type in ("int", "str", "bool", "tuple[int, ...]"))
_TENSORS = tuple(field.name for field in _FIELDS if field.type == "Tensor")
_CHUNK = 1 << 24


def rank_file(rank: int) -> str:
    """Name of the file of one rank inside a store."""
    return f"rank-{rank:05d}.safetensors"


@contextlib.contextmanager
def writing_store(store: Path) -> Iterator[Path]:
    """A temporary folder that becomes ``store`` when the block ends well, and vanishes when it does not.

    When another process has put the same store there meanwhile, theirs is kept. Raises ValueError in one
    line when the place cannot be written.
    """
    try:
        store.parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{store.name}-", dir=store.parent))
    except OSError as error:
        raise ValueError(f"{store}: cannot be written ({error.strerror}); choose another folder") from error
    try:
        yield folder
        try:
            folder.rename(store)
        except OSError as error:
            if not (store / MANIFEST_NAME).is_file():
                raise ValueError(
                    f"{store}: cannot be written ({error.strerror}); choose another folder"
                ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_partition(folder: Path, part: Partition) -> None:
    """Write one rank's file into the temporary folder of a store."""
    tensors = {name: getattr(part, name) for name in _TENSORS}
    features = part.features
    if isinstance(features, SparseRows):
        tensors |= {"x_indptr": features.indptr, "x_indices": features.indices, "x_values": features.values}
        tensors["x_shape"] = torch.tensor(features.shape, dtype=torch.int64)
    else:
        tensors["x"] = features
    scalars = json.dumps({name: getattr(part, name) for name in _SCALARS})
    safetensors.torch.save_file(
        {name: tensor.contiguous() for name, tensor in tensors.items()},
        folder / rank_file(part.rank),
        metadata={"partition": scalars},
    )


def write_pool(folder: Path, pool: BoundaryPool) -> None:
    """Write the boundary pool into the temporary folder of a store."""
    tensors = {field.name: getattr(pool, field.name).contiguous() for field in dataclasses.fields(pool)}
    safetensors.torch.save_file(tensors, folder / POOL_NAME)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest, last, with size and checksum of every other file."""
    files = {path.name: (path.stat().st_size, _crc32(path)) for path in sorted(folder.glob("*.safetensors"))}
    complete = msgspec.structs.replace(manifest, format=FORMAT_VERSION, files=files)
    text = msgspec.json.format(msgspec.json.encode(complete), indent=1)
    with open(folder / MANIFEST_NAME, "wb") as stream:
        stream.write(text + b"\n")
        stream.flush()
        os.fsync(stream.fileno())


def check_sizes(store: Path, manifest: Manifest) -> None:
    """Raise ValueError in one line when a file of the store is missing or cut short; reads no content."""
    for name, (size, _) in manifest.files.items():
        path = store / name
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            state = "is missing" if found is None else f"has {found} bytes instead of {size}"
            raise ValueError(f"{path}: {state}; remove {store} and partition again")


def load_partition(store: Path, rank: int, world_size: int) -> Partition:
    """The partition of one rank; reads the manifest and this rank's file only.

    Raises ValueError in one line when the store was made for another number of ranks or a file is missing
    or corrupt.
    """
    manifest = read_manifest(store)
    if manifest.origin.parts != world_size:
        raise ValueError(
            f"{store}: was made for {manifest.origin.parts} parts, but {world_size} ranks are running"
        )
    if not 0 <= rank < world_size:
        raise ValueError(f"{store}: has no rank {rank}; ranks are 0 to {world_size - 1}")
    tensors, metadata = _read(store, rank_file(rank), manifest)
    try:
        scalars: dict[str, Any] = json.loads(metadata["partition"])
        for name in ("recv_splits", "send_splits"):
            scalars[name] = tuple(scalars[name])
        values: dict[str, Any] = {name: scalars[name] for name in _SCALARS}
        values |= {name: tensors[name] for name in _TENSORS}
        part = Partition(**values, features=_features(tensors))
    except (KeyError, ValueError, TypeError) as error:
        raise ValueError(
            f"{store / rank_file(rank)}: is not a partition file ({error!r}); partition again"
        ) from error
    if part.fingerprint != manifest.fingerprint or part.rank != rank:
        raise ValueError(
            f"{store / rank_file(rank)}: belongs to another partition; remove {store} and partition again"
        )
    return part


def load_pool(store: Path) -> BoundaryPool:
    """The boundary pool of a store; raises ValueError in one line when its file is missing or corrupt."""
    tensors, _ = _read(store, POOL_NAME, read_manifest(store))
    try:
        return BoundaryPool(**{field.name: tensors[field.name] for field in dataclasses.fields(BoundaryPool)})
    except KeyError as error:
        raise ValueError(f"{store / POOL_NAME}: lacks {error}; remove {store} and partition again") from error


def _features(tensors: dict[str, Tensor]) -> Tensor | SparseRows:
    if "x" in tensors:
        return tensors["x"]
    rows, columns = tensors["x_shape"].tolist()
    return SparseRows(
        indptr=tensors["x_indptr"],
        indices=tensors["x_indices"],
        values=tensors["x_values"],
        shape=(rows, columns),
    )


def _read(store: Path, name: str, manifest: Manifest) -> tuple[dict[str, Tensor], dict[str, str]]:
    path = store / name
    if name not in manifest.files:
        raise ValueError(f"{store / MANIFEST_NAME}: does not list {name}; remove {store} and partition again")
    check_sizes(store, msgspec.structs.replace(manifest, files={name: manifest.files[name]}))
    if _crc32(path) != manifest.files[name][1]:
        raise ValueError(
            f"{path}: its content has changed (checksum differs); remove {store} and partition again"
        )
    try:
        with safetensors.safe_open(path, framework="pt") as archive:
            return {key: archive.get_tensor(key) for key in archive.keys()}, archive.metadata() or {}  # noqa: SIM118
    except (safetensors.SafetensorError, OSError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); remove {store} and partition again") from error


def _crc32(path: Path) -> int:
    checksum = 0
    with open(path, "rb") as stream:
        while chunk := stream.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return checksum
