"""Reading the heads of a model from its config.json."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.model_config import ModelHeads, read_model_heads

small = st.integers(1, 512)


def write(folder: Path, config: object) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@given(
    head_dim=small, kv_heads=small, group=small, states_head_dim=st.booleans(), gpt2=st.booleans()
)
def test_heads_round_trip(
    tmp_path_factory: pytest.TempPathFactory,
    head_dim: int,
    kv_heads: int,
    group: int,
    states_head_dim: bool,
    gpt2: bool,
) -> None:
    heads = kv_heads * group
    config = {
        "n_head" if gpt2 else "num_attention_heads": heads,
        "n_embd" if gpt2 else "hidden_size": heads * head_dim,
        "num_key_value_heads": kv_heads,
        "_name_or_path": "some/model",
    }
    if states_head_dim:
        head_dim += 1  # a model's head_dim need not be hidden size / heads
        config["head_dim"] = head_dim
    path = write(tmp_path_factory.mktemp("model"), config)
    assert read_model_heads(path) == ModelHeads("some/model", head_dim, heads, kv_heads)


def test_defaults_and_nulls(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    folder.mkdir()
    config = {"n_embd": 768, "n_head": 12, "head_dim": None, "num_key_value_heads": None}
    write(folder, config)
    assert read_model_heads(folder) == ModelHeads("gpt2", 64, 12, 12)


# Published configurations: (fields of config.json, head_dim, heads, kv_heads).
@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (  # Llama 3 8B
            {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8},
            (128, 32, 8),
        ),
        (  # Gemma 7B
            {
                "hidden_size": 3072,
                "num_attention_heads": 16,
                "num_key_value_heads": 16,
                "head_dim": 256,
            },
            (256, 16, 16),
        ),
        (  # Falcon 7B: multi-query, whatever num_kv_heads says
            {
                "hidden_size": 4544,
                "num_attention_heads": 71,
                "num_kv_heads": 71,
                "multi_query": True,
                "new_decoder_architecture": False,
            },
            (64, 71, 1),
        ),
        (  # Falcon 40B
            {
                "hidden_size": 8192,
                "num_attention_heads": 128,
                "num_kv_heads": 8,
                "multi_query": True,
                "new_decoder_architecture": True,
            },
            (64, 128, 8),
        ),
        (  # ChatGLM2 6B
            {
                "hidden_size": 4096,
                "kv_channels": 128,
                "num_attention_heads": 32,
                "multi_query_attention": True,
                "multi_query_group_num": 2,
            },
            (128, 32, 2),
        ),
        (  # Gemma 3 4B, of text and images, as its text part states it
            {
                "text_config": {
                    "head_dim": 256,
                    "hidden_size": 2560,
                    "num_attention_heads": 8,
                    "num_key_value_heads": 4,
                },
                "vision_config": {"hidden_size": 1152, "num_attention_heads": 16},
            },
            (256, 8, 4),
        ),
    ],
)
def test_published_models(
    tmp_path: Path, config: dict[str, object], expected: tuple[int, int, int]
) -> None:
    model = read_model_heads(write(tmp_path, config))
    assert (model.head_dim, model.heads, model.kv_heads) == expected


GOOD = {"hidden_size": 768, "num_attention_heads": 12}


@pytest.mark.parametrize(
    ("config", "window"),
    [
        ({}, None),
        ({"sliding_window": None}, None),
        ({"sliding_window": 0}, None),
        ({"sliding_window": True}, None),
        ({"sliding_window": "4096"}, None),
        ({"sliding_window": 4096}, 4096),  # as Mistral 7B has it
        ({"sliding_window": 131072, "use_sliding_window": False}, None),  # as Qwen2 7B has it
    ],
)
def test_a_sliding_window_is_read(
    tmp_path: Path, config: dict[str, object], window: int | None
) -> None:
    assert read_model_heads(write(tmp_path, GOOD | config)).sliding_window == window


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        ({}, "lacks num_attention_heads (or n_head)"),
        ({"num_attention_heads": 12}, "lacks hidden_size (or n_embd), and head_dim in its place"),
        (GOOD | {"hidden_size": 769}, "has hidden_size 769, which num_attention_heads 12 does not"),
        (GOOD | {"num_key_value_heads": 5}, "has num_key_value_heads 5, which does not divide"),
        (GOOD | {"head_dim": "64"}, "has head_dim '64'; it must be a whole number"),
        (GOOD | {"head_dim": 64.0}, "has head_dim 64.0; it must be a whole number"),
        (GOOD | {"head_dim": True}, "has head_dim True; it must be a whole number"),
        (GOOD | {"num_key_value_heads": 0}, "has num_key_value_heads 0; it must be"),
        (
            GOOD
            | {"kv_lora_rank": 512, "qk_nope_head_dim": 128}
            | {"qk_rope_head_dim": 64, "v_head_dim": 128},  # as DeepSeek V3 has them
            "has kv_lora_rank: latent attention has no single head dimension; write --head-dim 192 "
            "--value-dim 128 --heads 12 in its place",
        ),
        (GOOD | {"kv_lora_rank": 512}, "has kv_lora_rank: latent attention"),
        ([GOOD], "is not a JSON object"),
        ({"text_config": [GOOD]}, "lacks num_attention_heads"),
    ],
)
def test_unusable_configurations_name_the_file_and_the_field(
    tmp_path: Path, config: object, complaint: str
) -> None:
    path = write(tmp_path, config)
    with pytest.raises(IosimError) as caught:
        read_model_heads(path)
    assert str(caught.value).startswith(f"model config '{path}' {complaint}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_file_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(IosimError, match=r"is not JSON; give a model's config\.json"):
        read_model_heads(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(IosimError, match=r"config\.json' cannot be read \(No such file"):
        read_model_heads(tmp_path)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD), encoding="utf-8-sig")
    assert read_model_heads(path).heads == 12


def test_a_name_too_long_for_a_file() -> None:
    with pytest.raises(IosimError, match="cannot be read"):
        read_model_heads("a" * 300)
