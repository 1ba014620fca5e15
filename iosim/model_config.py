"""The heads of a model, read from its config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iosim.errors import IosimError


@dataclass(frozen=True)
class ModelHeads:
    """What attention needs to know of a model: query heads, key/value heads, words a head."""

    name: str
    head_dim: int
    heads: int
    kv_heads: int


def read_model_heads(path: str | Path) -> ModelHeads:
    """Return the heads that a config.json states; `path` is the file or its folder.

    `num_key_value_heads` defaults to the heads and `head_dim` to hidden size / heads; GPT-2's
    `n_embd` and `n_head` stand for `hidden_size` and `num_attention_heads`. Raises `IosimError`
    for a file that cannot be read, is not a JSON object, or lacks one of these fields.
    """
    path = Path(path)
    if path.is_dir():
        path /= "config.json"
    config = _Config(path, _read_object(path))
    heads = config.integer("num_attention_heads", "n_head")
    if heads is None:
        raise config.error("lacks num_attention_heads (or n_head)")
    kv_heads = config.integer("num_key_value_heads") or heads
    if heads % kv_heads:
        raise config.error(
            f"has num_key_value_heads {kv_heads}, which does not divide num_attention_heads {heads}"
        )
    return ModelHeads(config.model_name(), _head_dim(config, heads), heads, kv_heads)


def _head_dim(config: "_Config", heads: int) -> int:
    head_dim = config.integer("head_dim")
    if head_dim is not None:
        return head_dim
    hidden_size = config.integer("hidden_size", "n_embd")
    if hidden_size is None:
        raise config.error("lacks hidden_size (or n_embd), and head_dim in its place")
    if hidden_size % heads:
        raise config.error(
            f"has hidden_size {hidden_size}, which num_attention_heads {heads} does not divide, "
            "and no head_dim"
        )
    return hidden_size // heads


@dataclass(frozen=True)
class _Config:
    path: Path
    values: Mapping[str, object]

    def error(self, complaint: str) -> IosimError:
        return IosimError(f"model config '{self.path}' {complaint}")

    def integer(self, *names: str) -> int | None:
        """Return the first of the fields `names` that is there and not null."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise self.error(f"has {name} {value!r}; it must be a whole number of at least 1")
            return value
        return None

    def model_name(self) -> str:
        name = self.values.get("_name_or_path")
        return name if isinstance(name, str) and name else self.path.absolute().parent.name


def _read_object(path: Path) -> Mapping[str, object]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise IosimError(
            f"model config '{path}' cannot be read ({error.strerror}); give a model's config.json"
        ) from None
    except ValueError:  # not UTF-8, or not JSON
        raise IosimError(f"model config '{path}' is not JSON; give a model's config.json") from None
    if not isinstance(config, dict):
        raise IosimError(f"model config '{path}' is not a JSON object; give a model's config.json")
    return config
