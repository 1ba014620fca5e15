"""The data file of machines, and finding a machine by name."""

import json
from dataclasses import fields
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iosim.errors import IosimError
from iosim.machine import Machine, machine, machine_names
from iosim.units import DTYPES, ITEM_BYTES

MEASURED = {field.name for field in fields(Machine)} - {"name", "sources"}
presets = pytest.mark.parametrize(
    "preset", [machine(name) for name in machine_names()], ids=lambda preset: preset.name
)


@presets
def test_every_field_states_its_source(preset: Machine) -> None:
    assert set(preset.sources) == MEASURED
    for source in preset.sources.values():
        assert any(year in source for year in map(str, range(2017, 2027))) or "Guide" in source
        assert "://" not in source
        assert "www." not in source


@presets
def test_sizes_are_consistent(preset: Machine) -> None:
    sizes = [getattr(preset, name) for name in MEASURED - {"peak_flops"}]
    assert all(isinstance(size, int) and size > 0 for size in sizes)
    assert preset.shared_bytes_per_block <= preset.shared_bytes_per_sm < preset.l2_bytes
    assert preset.l2_bytes < preset.hbm_bytes
    # One KiB of each SM is the system's own from compute capability 8.0 on.
    assert preset.shared_bytes_per_sm - preset.shared_bytes_per_block in (0, 1024)
    assert preset.registers_per_sm == 65536


@presets
def test_rates_are_consistent(preset: Machine) -> None:
    rates = preset.peak_flops
    assert set(rates) <= set(DTYPES)
    assert {"float16", "float32", "float64"} <= set(rates)
    assert all(isinstance(rate, int) and rate > 0 for rate in rates.values())
    assert rates["float64"] < rates["float32"] < rates["float16"]
    assert rates.get("bfloat16", rates["float16"]) == rates["float16"]


@pytest.mark.parametrize(
    ("name", "fma_per_clock", "boost_mhz"),
    [
        ("V100", 64, 1530),
        ("A100", 64, 1410),
        ("H100", 128, 1980),
        ("RTX 3060 Ti", 128, 1665),
        ("RTX 4090", 128, 2520),
    ],
)
def test_float32_rate_is_cores_times_clock(name: str, fma_per_clock: int, boost_mhz: int) -> None:
    # The vendors print three digits: half a unit in the third is below 0.5 %.
    preset = machine(name)
    computed = preset.sms * fma_per_clock * 2 * boost_mhz * 10**6
    assert abs(preset.peak_flops["float32"] - computed) <= 0.005 * computed


def test_h200_is_the_device_of_the_measurements() -> None:
    h200 = machine("H200")
    assert (h200.sms, h200.l2_bytes, h200.registers_per_sm) == (132, 62914560, 65536)
    assert (h200.shared_bytes_per_block, h200.shared_bytes_per_sm) == (232448, 233472)


@given(st.sampled_from(machine_names()), st.data())
def test_names_ignore_case_spaces_and_dashes(name: str, data: st.DataObject) -> None:
    spelt = "".join(
        data.draw(st.sampled_from(["", " ", "-", "_"]))
        + data.draw(st.sampled_from([letter.lower(), letter.upper()]))
        for letter in name
        if letter != " "
    )
    assert machine(spelt) is machine(name)


def test_unknown_machine_names_the_closest() -> None:
    with pytest.raises(IosimError, match=r"^unknown device 'H20'; did you mean 'H200'\? known: V1"):
        machine("H20")


@pytest.mark.parametrize("dtype", DTYPES)
@presets
def test_fast_words_fill_the_shared_memory_of_a_block(preset: Machine, dtype: str) -> None:
    words = preset.fast_words(dtype)
    assert words * ITEM_BYTES[dtype] <= preset.shared_bytes_per_block
    assert (words + 1) * ITEM_BYTES[dtype] > preset.shared_bytes_per_block


def test_a_dtype_that_a_machine_lacks_is_said() -> None:
    with pytest.raises(IosimError, match=r"^V100 has no bfloat16; it has float16, float32"):
        machine("V100").flops_per_second("bfloat16")
    with pytest.raises(IosimError, match=r"^unknown dtype 'half'"):
        machine("V100").flops_per_second("half")


def test_machines_are_values() -> None:
    assert len({machine("A100"), machine("a100"), machine("H100")}) == 2


def test_data_file_has_no_field_twice() -> None:
    text = resources.files("iosim.data").joinpath("machines.json").read_text(encoding="utf-8")

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    assert json.loads(text, object_pairs_hook=once)["machines"]
