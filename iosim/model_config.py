"""The heads of a model, read from its config.json."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from iosim.errors import IosimError


@dataclass(frozen=True)
class ModelHeads:
    """What attention needs to know of a model: query heads, key/value heads, words a head.

    `sliding_window` is the keys that a query sees at most in some or all layers, None for all keys.
    """

    name: str
    head_dim: int
    heads: int
    kv_heads: int
    sliding_window: int | None = None


def read_model_heads(path: str | Path) -> ModelHeads:
    """Return the heads that a config.json states; `path` is the file or its folder.

    `num_key_value_heads` defaults to the heads and `head_dim` to hidden size / heads; GPT-2's
    `n_embd` and `n_head` stand for `hidden_size` and `num_attention_heads`. Falcon's and
    StarCoder's `multi_query` and ChatGLM's `multi_query_group_num` state the key/value heads too.
    A model of text and images has its heads in `text_config`. Raises `IosimError` for a file that
    cannot be read, is not a JSON object, or lacks one of these fields, and for latent attention,
    where rows of K are longer than those of V.
    """
    config = _Config(*_read_object(Path(path)))
    heads = config.integer("num_attention_heads", "n_head")
    if heads is None:
        raise config.error("lacks num_attention_heads (or n_head)")
    _refuse_latent_attention(config, heads)
    kv_heads = _kv_heads(config) or heads
    if heads % kv_heads:
        raise config.error(
            f"has num_key_value_heads {kv_heads}, which does not divide num_attention_heads {heads}"
        )
    head_dim, window = _head_dim(config, heads), _sliding_window(config)
    return ModelHeads(config.model_name(), head_dim, heads, kv_heads, window)


def _sliding_window(config: "_Config") -> int | None:
    if config.values.get("use_sliding_window") is False:  # Qwen2 states one and turns it off
        return None
    window = config.values.get("sliding_window")
    if isinstance(window, bool) or not isinstance(window, int) or window < 1:
        return None  # no error, since nothing is counted by it
    return window


def _kv_heads(config: "_Config") -> int | None:
    stated = config.integer("num_key_value_heads", "multi_query_group_num")
    if stated is not None:
        return stated
    if config.values.get("new_decoder_architecture") is True:  # Falcon 40B and 180B
        return config.integer("num_kv_heads", "n_head_kv")
    return 1 if config.values.get("multi_query") is True else None


def _refuse_latent_attention(config: "_Config", heads: int) -> None:
    if config.integer("kv_lora_rank") is None:
        return
    parts = [config.integer(f"qk_{part}_head_dim") or 0 for part in ("nope", "rope")]
    value_dim = config.integer("v_head_dim")
    stated = (
        f"; write --head-dim {sum(parts)} --value-dim {value_dim} --heads {heads} in its place"
        if all(parts) and value_dim
        else "; write --head-dim, --value-dim and --heads in its place"
    )
    raise config.error(f"has kv_lora_rank: latent attention has no single head dimension{stated}")


def _head_dim(config: "_Config", heads: int) -> int:
    head_dim = config.integer("head_dim", "kv_channels")
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


def _read_object(path: Path) -> tuple[Path, Mapping[str, object]]:
    """Return the file and the object in it that states the heads."""
    try:
        if path.is_dir():
            path /= "config.json"
        config = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise IosimError(
            f"model config '{path}' cannot be read ({error.strerror}); give a model's config.json"
        ) from None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested without end
        raise IosimError(f"model config '{path}' is not JSON; give a model's config.json") from None
    if not isinstance(config, dict):
        raise IosimError(f"model config '{path}' is not a JSON object; give a model's config.json")
    inner = config.get("text_config")
    if isinstance(inner, dict) and not {"num_attention_heads", "n_head"} & config.keys():
        return path, {"_name_or_path": config.get("_name_or_path"), **inner}
    return path, config
