"""Packing for a machine without a network: pruned programs, files that are kept, refusals."""

import struct
import sys
import zipfile
from pathlib import Path

import pytest

from harness.tools.fidelity import gpu_pack, gpu_unpack
from harness.tools.fidelity.gpu_pack import MACHINE_CODE, MAGIC, containers, pruned, section

PTX = 1
HEADER = 64  # of an entry and of an ELF file
CONTAINER = 16  # header of a container


def entry(kind: int, arch: int, code: bytes) -> bytes:
    header = struct.pack("<HHIQ12xI", kind, 0x101, HEADER, len(code), arch)
    return header.ljust(HEADER, b"\1") + code


def container(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", MAGIC, 1, CONTAINER, len(body)) + body


def shared_object(*parts: bytes) -> bytes:
    """A 64-bit ELF file with a section of GPU programs between two of other bytes."""
    names = b"\0.text\0.nv_fatbin\0.shstrtab\0"
    contents = {".text": b"\7" * 40, ".nv_fatbin": b"".join(parts), ".shstrtab": names}
    data, headers = bytes(HEADER), bytes(HEADER)
    for name, content in contents.items():
        place = names.index(name.encode() + b"\0")
        headers += struct.pack("<IIQQQQ24x", place, 1, 0, 0, len(data), len(content))
        data += content
    start = struct.pack("<40xQ10xHHH", len(data), 64, 4, 3)
    return start[:HEADER] + data[HEADER:] + headers


HOPPER, TURING = entry(MACHINE_CODE, 90, b"hopper" * 4), entry(MACHINE_CODE, 75, b"turing" * 12)
WANTED = shared_object(
    container(entry(PTX, 90, b"ptx90ptx"), TURING, HOPPER, entry(MACHINE_CODE, 90, b"second!!")),
    bytes(8),
    container(entry(MACHINE_CODE, 80, b"ampere" * 4)),
)


def test_pruning_keeps_the_bytes_of_what_is_kept_and_all_addresses() -> None:
    new = pruned(WANTED, 90)
    both = HOPPER + entry(MACHINE_CODE, 90, b"second!!")
    first, last = containers(new)
    assert first.kept(90) == both
    # Not empty: a program for another architecture stays.
    assert new[last.first : last.end] == entry(MACHINE_CODE, 80, b"ampere" * 4)
    assert first.start == next(containers(WANTED)).start
    assert b"turing" not in new
    assert b"ptx90" not in new
    start, end = section(WANTED) or (0, 0)
    assert len(new) == len(WANTED)
    assert (new[:start], new[end:]) == (WANTED[:start], WANTED[end:])
    assert pruned(new, 90) == new


def test_a_file_without_gpu_programs_has_no_containers() -> None:
    assert list(containers(shared_object(b""))) == []


def test_containers_of_another_format_are_refused() -> None:
    broken = container(HOPPER)[:-8] + struct.pack("<Q", 0)
    broken = broken.replace(struct.pack("<Q", len(HOPPER)), struct.pack("<Q", len(HOPPER) - 8), 1)
    with pytest.raises(ValueError, match="unknown format"):
        list(containers(shared_object(broken)))


def _wheel(folder: Path, name: str, files: dict[str, bytes]) -> Path:
    path = folder / name
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
    return path


def test_what_is_kept_of_wheels(tmp_path: Path) -> None:
    code = gpu_pack.OBJECTS[0]
    files = dict.fromkeys(("vllm/_C.abi3.so", "vllm/a.py", "vllm/a.h", "vllm/x"), b"")
    files[code] = WANTED
    files["vllm-0.dist-info/RECORD"] = files["vllm-0.dist-info/METADATA"] = b"Name: vllm"
    vllm = _wheel(tmp_path, "vllm-0-py3-none-any.whl", files)
    other = _wheel(tmp_path, "other-1-py3-none-any.whl", {"other/b.cpython-312.so": WANTED[:64]})
    names = [name for wheel in (vllm, other) for name, _ in gpu_pack.files_of(wheel)]
    assert names == ["vllm/a.py", code, "vllm-0.dist-info/METADATA", "other/b.cpython-312.so"]


def test_packages_of_this_environment_come_without_what_was_compiled() -> None:
    names = [name for name, _ in gpu_pack.own_files()]
    assert {"hydra/__init__.py", "omegaconf/__init__.py", "antlr4/__init__.py"} <= set(names)
    assert not [name for name in names if name.endswith((".pyc", "RECORD")) or ".." in name]


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pack for this Python of two files."""
    monkeypatch.setattr(gpu_pack, "PYTHON", ".".join(map(str, sys.version_info[:2])))
    files = [("vllm/_C.abi3.so", WANTED), ("vllm/a.py", b"x = 1\n")]
    folder = gpu_pack.cleared(tmp_path / "pack")
    total = gpu_pack.write(folder, gpu_pack.grouped(files), ["vllm-0.whl"])
    assert total == sum(path.stat().st_size for path in folder.glob("*.tar.xz"))
    return folder


def test_unpacking_gives_the_files_back_compiled(packed: Path, tmp_path: Path) -> None:
    assert gpu_unpack.main([str(tmp_path / "site"), str(packed)]) == 0
    assert (tmp_path / "site/vllm/_C.abi3.so").read_bytes() == pruned(WANTED, 90)
    assert (tmp_path / "site/vllm/a.py").read_text() == "x = 1\n"
    assert list((tmp_path / "site/vllm/__pycache__").glob("a.*.pyc"))


def test_an_archive_with_another_checksum_is_refused(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = packed / "python.tar.xz"
    archive.write_bytes(archive.read_bytes()[:-1] + b"?")
    assert gpu_unpack.main([str(tmp_path / "site"), str(packed)]) == 1
    assert capsys.readouterr().err == f"{archive}: checksum mismatch\n"
    archive.unlink()
    assert gpu_unpack.main([str(tmp_path / "site"), str(packed)]) == 1
    assert str(archive) in capsys.readouterr().err


def test_another_python_is_refused(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest = packed / gpu_unpack.MANIFEST
    manifest.write_text(manifest.read_text().replace(f'"{gpu_pack.PYTHON}"', '"3.2"'))
    assert gpu_unpack.main([str(tmp_path / "site"), str(packed)]) == 1
    assert "was packed for Python 3.2" in capsys.readouterr().err


def test_only_an_earlier_pack_is_replaced(
    packed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (packed / "kept.txt").touch()
    assert [path.name for path in gpu_pack.cleared(packed).iterdir()] == ["kept.txt"]
    assert gpu_pack.main(["--out", str(packed)]) == 2
    assert capsys.readouterr().err == f"--out={packed} has other files: name a new folder\n"
