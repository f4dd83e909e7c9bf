"""The command line of Config: every field is a flag, and what the user named is kept apart from what is default."""

from __future__ import annotations

import argparse
import difflib
import re
import tomllib
import types
import typing
from pathlib import Path
from typing import Any

from sylvie.config import OPTIONS, Config, flag, nearest


class OneLineParser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and exit code 2."""

    def error(self, message: str) -> typing.NoReturn:
        """Raise the message as a user error, an unknown option with the nearest known ones."""
        unknown = re.match(r"unrecognized arguments: (--[^ =]+)", message)
        if unknown:
            close = difflib.get_close_matches(unknown[1], list(self._option_string_actions), n=3, cutoff=0.5)
            hint = f"did you mean {' or '.join(close)}?" if close else f"see {self.prog} --help"
            raise ValueError(f"option {unknown[1]} is unknown; {hint}")
        raise ValueError(re.sub(r"^argument (--[^ ]+): (?=\1 )", "", message))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add a flag for every field of Config; an option that is not given leaves no trace in the namespace."""
    hints = typing.get_type_hints(Config)
    for name, item in OPTIONS.items():
        kind = _plain(hints[name])
        described = f"{item.metadata['help']} (default: {_shown(item.default)})".replace("%", "%%")
        settings: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": described}
        if kind is bool:
            parser.add_argument(flag(name), action=argparse.BooleanOptionalAction, **settings)
            continue
        if choices := item.metadata.get("choices"):
            settings["metavar"] = "{" + ",".join(choices) + "}"
        parser.add_argument(flag(name), type=_for_argparse(_converter(name, kind)), **settings)


def read_config_file(path: Path) -> dict[str, Any]:
    """Options from a TOML file with the command line's names (dashes or underscores); ValueError in one line."""
    try:
        content = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"--config {path}: no such file") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ValueError(f"--config {path}: {error}") from None
    hints, options = typing.get_type_hints(Config), {}
    for key, value in content.items():
        name = key.replace("-", "_")
        if name not in OPTIONS:
            raise ValueError(f"--config {path}: option {key!r} is unknown{nearest(name, tuple(OPTIONS))}")
        kind = _plain(hints[name])
        if kind is bool:
            if not isinstance(value, bool):
                raise ValueError(f"--config {path}: {key} is {value!r}; write true or false")
            options[name] = value
        else:
            options[name] = _converter(name, kind)(str(value))
    return options


def _plain(hint: Any) -> type:
    """``X | None`` -> X."""
    if isinstance(hint, types.UnionType):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    return typing.cast(type, hint)


def _converter(name: str, kind: type) -> typing.Callable[[str], Any]:
    def convert(text: str) -> Any:
        try:
            return kind(text)
        except ValueError:
            wanted = {int: "a whole number", float: "a number"}.get(kind, kind.__name__)
            raise ValueError(f"{flag(name)} {text!r} is not {wanted}") from None

    return convert


def _for_argparse(convert: typing.Callable[[str], Any]) -> typing.Callable[[str], Any]:
    """argparse replaces a ValueError's text by its own; it keeps this one's."""

    def converted(text: str) -> Any:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return converted


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
