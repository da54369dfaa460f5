"""The grammar of NVIDIA_REQUIRE_*, by cases of it."""

import pytest
from vc_egpu.core.environments.needs import Needs, lacking
from vc_egpu.volcano.needs import nvidia

NODE = (
    ("brand", ("tesla",)),
    ("capability", ("8.0",)),
    ("cuda", ("12.4",)),
    ("driver", ("550.54.14",)),
)
CASES = [
    ("cuda>=12.4", True),
    ("cuda>=12.5", False),
    ("cuda>12.4", False),
    ("cuda>12.3", True),
    ("cuda<12.4", False),
    ("cuda<=12.4", True),
    ("cuda<=12.3", False),
    ("cuda=12.4", True),
    ("cuda=12.4.0", True),
    ("cuda=12", False),
    ("cuda!=12.4", False),
    ("cuda!=12.5", True),
    ("cuda>=12", True),
    ("cuda>=9.0", True),
    ("cuda>=12.10", False),
    ("driver>=550", True),
    ("driver>=550.54.15", False),
    ("driver<550", False),
    ("driver<551", True),
    ("driver>=470,driver<471", False),
    ("driver>=550,driver<551", True),
    ("arch>=8.0", True),
    ("arch>8.0", False),
    ("arch=8", True),
    ("arch!=7.0", True),
    ("brand=tesla", True),
    ("brand=Tesla", True),
    ("brand=geforce", False),
    ("brand!=geforce", True),
    ("brand!=TESLA", False),
    ("cuda>=12.5 cuda>=12.4", True),
    ("cuda>=12.5 cuda>=12.6", False),
    ("cuda>=12.5 brand=tesla,driver>=535,driver<551", True),
    ("cuda>=12.5 brand=geforce,driver>=535", False),
    ("  cuda>=12.4   cuda>=13 ", True),
    ("cuda>=12.5\tcuda>=12.4", True),
    ("cuda>=12.4,arch>=9.0", False),
    ("cuda>=12.4,arch>=9.0 arch=8.0", True),
    ("driver>=0550", True),
    ("driver<=550.54.14.0", True),
]
IGNORED = ["", "cuda", "cuda~12", "cuda>=", "cuda>=x", "colour=red", "brand>tesla", "cuda>=12..4"]


def test_forty_cases_of_the_grammar() -> None:
    assert len(CASES) >= 40


@pytest.mark.parametrize(("value", "holds"), CASES)
def test_a_case_of_the_grammar(value: str, holds: bool) -> None:
    ways, ignored = nvidia.terms(value)
    assert not ignored
    assert (not lacking(Needs("", ways, presumed=True), NODE)) is holds


@pytest.mark.parametrize("value", IGNORED)
def test_what_is_not_understood_is_ignored_with_a_warning(value: str) -> None:
    ways, ignored = nvidia.terms(value)
    assert ways == ()
    assert bool(ignored) is bool(value)


def test_each_of_several_variables_is_to_hold() -> None:
    found = nvidia.read({"NVIDIA_REQUIRE_CUDA": "cuda>=12.0", "NVIDIA_REQUIRE_ARCH": "arch>=9.0"})
    assert found.names == ("NVIDIA_REQUIRE_ARCH", "NVIDIA_REQUIRE_CUDA")
    assert lacking(Needs("", found.ways), NODE)


def test_an_old_image_asks_by_its_cuda_version() -> None:
    (way,) = nvidia.read({"CUDA_VERSION": "12.5.1"}).ways
    assert [str(atom) for atom in way] == ["cuda>=12.5"]
    assert nvidia.read({"CUDA_VERSION": "unknown"}).ways == ()
    (way,) = nvidia.read({"CUDA_VERSION": "12.5.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.0"}).ways
    assert [str(atom) for atom in way] == ["cuda>=12.0"]


@pytest.mark.parametrize("word", ["1", "true", "TRUE", "yes", "on", "t"])
def test_the_image_may_skip_all(word: str) -> None:
    assert nvidia.read({"NVIDIA_REQUIRE_CUDA": "cuda>=99", "NVIDIA_DISABLE_REQUIRE": word}).ways == ()


def test_jetpack_is_skipped() -> None:
    assert nvidia.read({"NVIDIA_REQUIRE_JETPACK": "jetpack>=5"}).warnings == ()


def test_combinations_are_bounded() -> None:
    many = " ".join(f"cuda={number}" for number in range(40))
    found = nvidia.read({"NVIDIA_REQUIRE_A": many, "NVIDIA_REQUIRE_B": many.replace("cuda", "driver")})
    assert len(found.ways) == 40
    assert "combinations" in found.warnings[0]
