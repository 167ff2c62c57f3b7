"""Submissions: what is written is accepted; every fault of a zip is named."""

from __future__ import annotations

import io
import random
import re
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks import glue_submission_check
from bertsmith.tasks.glue_submission import SUBMISSION, write_submission
from bertsmith.tasks.glue_submission_check import check_submission
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS

Files = dict[str, bytes]
LABELS = {  # written out, so that a slip in the records would be seen
    "CoLA.tsv": "0 1",
    "SST-2.tsv": "0 1",
    "MRPC.tsv": "0 1",
    "QQP.tsv": "0 1",
    "WNLI.tsv": "0 1",
    "MNLI-m.tsv": "contradiction entailment neutral",
    "MNLI-mm.tsv": "contradiction entailment neutral",
    "AX.tsv": "contradiction entailment neutral",
    "QNLI.tsv": "entailment not_entailment",
    "RTE.tsv": "entailment not_entailment",
}


def some_predictions(seed: int = 0) -> dict[str, list[str] | list[float]]:
    draw = random.Random(seed)
    return {
        file.name: draw.choices(LABELS[file.name].split(), k=file.rows)
        if file.name in LABELS
        else [draw.uniform(-1, 6) for _ in range(file.rows)]
        for file in SUBMISSION
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("good") / "submission.zip"
    write_submission(path, some_predictions())
    return path


@pytest.fixture
def good(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zip without the three longest files, where these do not belong to a submission: for speed."""
    short = tuple(file for file in SUBMISSION if file.rows < 9000)
    monkeypatch.setattr(glue_submission_check, "SUBMISSION", short)
    names = {file.name for file in short}
    files = {name: content for name, content in unpacked(whole).items() if name in names}
    return packed(tmp_path / "good.zip", files)


def unpacked(path: Path) -> Files:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def packed(path: Path, files: Files) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def read_independently(path: Path) -> dict[str, list[str]]:
    """Read a submission by the published rules alone."""
    found = {}
    for name, content in unpacked(path).items():
        header, *rows = content.decode("ascii").removesuffix("\n").split("\n")
        assert header == "index\tprediction"
        parts = [row.split("\t") for row in rows]
        assert [int(index) for index, _ in parts] == list(range(len(parts)))
        found[name] = [prediction for _, prediction in parts]
    return found


def test_what_is_written_is_accepted_and_an_independent_reading_agrees(whole: Path, tmp_path: Path) -> None:
    assert check_submission(whole) == []
    found, predictions = read_independently(whole), some_predictions()
    assert sorted(found) == sorted([*LABELS, "STS-B.tsv"])
    for name, values in found.items():
        if name in LABELS:
            assert values == predictions[name]
        else:
            clipped = [min(5.0, max(0.0, float(value))) for value in predictions[name]]
            assert [float(value) for value in values] == pytest.approx(clipped, abs=1e-6)
    assert min(map(float, found["STS-B.tsv"])) == 0
    assert max(map(float, found["STS-B.tsv"])) == 5
    again = tmp_path / "again.zip"
    write_submission(again, predictions)
    assert again.read_bytes() == whole.read_bytes(), "the same predictions give the same bytes"


def test_the_numbers_of_rows_are_those_of_the_published_files(shared_data: Path) -> None:
    counted = 0
    for file in SUBMISSION:
        rows = TASKS[file.data].read(DataSource(str(shared_data / "glue")), file.split)
        if rows is not None:
            counted += 1
            assert len(rows.rows) == file.rows, file.name
    assert counted >= 8, "QQP and MNLI have no test rows in the folder of real data"


def change(name: str, old: str, new: str) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        changed = files[name].decode().replace(old, new, 1)
        assert changed != files[name].decode()
        files[name] = changed.encode()

    return apply


def change_all(name: str, old: str, new: str) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        files[name] = files[name].replace(old.encode(), new.encode())

    return apply


def lines(name: str, edit: Callable[[list[str]], None]) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        found = files[name].decode().splitlines(keepends=True)
        edit(found)
        files[name] = "".join(found).encode()

    return apply


def rename(old: str, new: str) -> Callable[[Files], None]:
    def apply(files: Files) -> None:
        files[new] = files.pop(old)

    return apply


def swap(rows: list[str]) -> None:
    rows[3], rows[4] = rows[4], rows[3]


def set_line(number: int, text: str) -> Callable[[list[str]], None]:
    def apply(rows: list[str]) -> None:
        rows[number - 1] = text

    return apply


FAULTS: dict[str, tuple[Callable[[Files], None], list[str]]] = {
    "missing": (lambda files: files.pop("AX.tsv") and None, ["AX.tsv: is missing; expected a file of 1,104"]),
    "case": (
        rename("CoLA.tsv", "cola.tsv"),
        ["cola.tsv: does not belong .*did you mean 'CoLA.tsv'", "CoLA.tsv: is missing"],
    ),
    "folder": (
        rename("RTE.tsv", "mine/RTE.tsv"),
        ["mine/RTE.tsv: is in a folder; put RTE.tsv at the top", "RTE.tsv: is missing"],
    ),
    "stranger": (
        lambda files: files.update({"__MACOSX/._x": b""}),
        ["__MACOSX/._x: does not belong to a submission; leave it out"],
    ),
    "header": (
        change("RTE.tsv", "index\tprediction", "id\tlabel"),
        [r"RTE.tsv, line 1: the header is 'id\\tlabel'; expected 'index\\tprediction'"],
    ),
    "header of commas": (
        change_all("RTE.tsv", "\t", ","),
        [
            "RTE.tsv, line 1: the header is 'index,prediction'",
            r"RTE.tsv, line 2: 1 fields; expected an index, a tab, a prediction \(2,999 more of this kind\)",
            r"RTE.tsv, line 2: '0,\w+' is no index; expected a whole number from 0 to 2999 \(2,999 more",
            "RTE.tsv: index 0 and 2,999 others are missing",
        ],
    ),
    "no header": (
        lines("RTE.tsv", lambda rows: rows.pop(0) and None),
        [r"RTE.tsv, line 1: the header is '0\\t\w+'; expected 'index\\tprediction'"],
    ),
    "one row less": (
        lines("RTE.tsv", lambda rows: rows.pop() and None),
        ["RTE.tsv: has 2,999 rows; expected 3,000", "RTE.tsv: index 2999 is missing"],
    ),
    "one row more": (
        lines("RTE.tsv", lambda rows: rows.append("3000\tentailment\n")),
        [
            "RTE.tsv, line 3002: index 3000 is out of range; expected 0 to 2999",
            "RTE.tsv: has 3,001 rows; expected 3,000",
        ],
    ),
    "empty": (
        lambda files: files.update({"WNLI.tsv": b""}),
        [
            "WNLI.tsv, line 1: the header is ''",
            "WNLI.tsv: has 0 rows; expected 146",
            "WNLI.tsv: index 0 and 145 others are missing",
        ],
    ),
    "gap": (
        lines("WNLI.tsv", lambda rows: rows.pop(8) and None),
        ["WNLI.tsv: has 145 rows; expected 146", "WNLI.tsv: index 7 is missing"],
    ),
    "repeated": (
        lines("WNLI.tsv", set_line(10, "7\t1\n")),
        ["WNLI.tsv, line 10: index 7 was there before", "WNLI.tsv: index 8 is missing"],
    ),
    "order": (lines("WNLI.tsv", swap), ["WNLI.tsv, line 5: index 2 stands behind 3; keep the order"]),
    "from one": (
        lines(
            "WNLI.tsv", lambda rows: rows.__setitem__(slice(1, None), [f"{n}\t0\n" for n in range(1, 147)])
        ),
        ["WNLI.tsv, line 147: index 146 is out of range", "WNLI.tsv: index 0 is missing"],
    ),
    "index": (
        lines("WNLI.tsv", set_line(4, "２\t0\n")),
        ["WNLI.tsv, line 4: '２' is no index", "WNLI.tsv: index 2 is missing"],
    ),
    "number for a name": (
        change_all("QNLI.tsv", "not_entailment", "1"),
        [r"QNLI.tsv, line \d+: label '1' is unknown; expected entailment or not_entailment \([\d,]+ more"],
    ),
    "name for a number": (
        lines("SST-2.tsv", set_line(2, "0\tpositive\n")),
        ["SST-2.tsv, line 2: label 'positive' is unknown; expected 0 or 1"],
    ),
    "float for a label": (
        lines("CoLA.tsv", set_line(2, "0\t1.0\n")),
        ["CoLA.tsv, line 2: label '1.0' is unknown"],
    ),
    "blank in a label": (
        lines("CoLA.tsv", set_line(2, "0\t1 \n")),
        ["CoLA.tsv, line 2: label '1 ' is unknown"],
    ),
    "empty label": (lines("CoLA.tsv", set_line(2, "0\t\n")), ["CoLA.tsv, line 2: label '' is unknown"]),
    "three fields": (
        lines("CoLA.tsv", set_line(2, "0\t1\t0.9\n")),
        ["CoLA.tsv, line 2: 3 fields; expected an index, a tab"],
    ),
    "quoted": (
        lines("AX.tsv", set_line(2, '"0"\t"neutral"\n')),
        [
            """AX.tsv, line 2: the index '"0"' is quoted; write it without quotes""",
            """AX.tsv, line 2: the prediction '"neutral"' is quoted""",
        ],
    ),
    "bom": (
        lambda files: files.update({"AX.tsv": b"\xef\xbb\xbf" + files["AX.tsv"]}),
        ["AX.tsv, line 1: begins with a byte order mark"],
    ),
    "crlf": (
        change_all("AX.tsv", "\n", "\r\n"),
        [r"AX.tsv, line 2: the line ends with CR LF; end lines with LF \(1,103 more of this kind\)"],
    ),
    "blank line": (
        lines("AX.tsv", lambda rows: rows.append("\n")),
        ["AX.tsv, line 1106: the line is blank; leave it out"],
    ),
    "encoding": (
        lambda files: files.update({"AX.tsv": files["AX.tsv"].replace(b"neutral", b"neutr\xe4l", 1)}),
        [r"AX.tsv, line \d+: is not UTF-8", "AX.tsv, line .*: label 'neutr\ufffdl' is unknown"],
    ),
    "too high": (
        lines("STS-B.tsv", set_line(3, "1\t5.01\n")),
        ["STS-B.tsv, line 3: '5.01' is out of range; clip values to 0..5"],
    ),
    "infinite": (
        lines("STS-B.tsv", set_line(3, "1\t1e999\n")),
        ["STS-B.tsv, line 3: '1e999' is out of range"],
    ),
    "no value": (
        lines("STS-B.tsv", set_line(3, "1\tnan\n")),
        ["STS-B.tsv, line 3: 'nan' is no value; expected a number from 0 to 5"],
    ),
    "decimal comma": (lines("STS-B.tsv", set_line(3, "1\t3,5\n")), ["STS-B.tsv, line 3: '3,5' is no value"]),
    "digits that Python takes": (
        lines("STS-B.tsv", set_line(3, "1\t1_0\n")),
        ["STS-B.tsv, line 3: '1_0' is no value"],
    ),
}


@pytest.mark.parametrize("name", list(FAULTS))
def test_every_fault_is_named(name: str, good: Path, tmp_path: Path) -> None:
    files = unpacked(good)
    apply, expected = FAULTS[name]
    apply(files)
    problems = [str(problem) for problem in check_submission(packed(tmp_path / "x.zip", files))]
    assert len(problems) == len(expected), problems
    for problem, pattern in zip(problems, expected, strict=True):
        assert re.match(pattern, problem), problem


def test_all_faults_of_one_zip_are_named_at_once(good: Path, tmp_path: Path) -> None:
    files = unpacked(good)
    for name in ("missing", "header", "gap", "name for a number", "too high"):
        FAULTS[name][0](files)
    problems = [str(problem) for problem in check_submission(packed(tmp_path / "x.zip", files))]
    assert [problem.split(":")[0].split(",")[0] for problem in problems] == [
        "SST-2.tsv",
        "STS-B.tsv",
        "RTE.tsv",
        "WNLI.tsv",
        "WNLI.tsv",
        "AX.tsv",
    ]


def test_a_last_line_without_an_end_is_no_fault(good: Path, tmp_path: Path) -> None:
    files = {name: content.removesuffix(b"\n") for name, content in unpacked(good).items()}
    assert check_submission(packed(tmp_path / "x.zip", files)) == []


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_is_there_twice(good: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(good.read_bytes())
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("RTE.tsv", unpacked(good)["RTE.tsv"])
    assert [str(problem) for problem in check_submission(path)] == [
        "RTE.tsv: is 2 times in the zip; keep one"
    ]


def test_what_is_no_zip_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_bytes(b"index\tprediction\n")
    with pytest.raises(InputError, match=r"x\.zip: no zip file"):
        check_submission(tmp_path / "x.zip")
    with pytest.raises(InputError, match=r"y\.zip: no such file"):
        check_submission(tmp_path / "y.zip")


def test_a_damaged_zip_is_a_problem_not_a_crash(good: Path, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in unpacked(good).items():
            archive.writestr(name, content[:2000])
    intact = bytes(buffer.getbuffer())
    draw = random.Random(0)
    named = 0
    for _ in range(300):
        damaged = bytearray(intact)
        damaged[draw.randrange(len(damaged))] ^= 1 << draw.randrange(8)
        (tmp_path / "x.zip").write_bytes(damaged)
        try:
            problems = [str(problem) for problem in check_submission(tmp_path / "x.zip")]
        except InputError:
            continue
        named += any("cannot be read" in problem for problem in problems)
    assert named > 100


def test_a_file_of_a_thousand_times_the_size_is_not_unpacked(good: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in unpacked(good).items():
            archive.writestr(name, content if name != "RTE.tsv" else bytes(80 << 20))
    (problem,) = check_submission(tmp_path / "x.zip")
    assert str(problem) == "RTE.tsv: has 83,886,080 bytes; 3,000 rows need far fewer"


def test_an_encrypted_member_is_named(good: Path, tmp_path: Path) -> None:
    content = bytearray(good.read_bytes())
    entry = content.rindex(b"PK\x01\x02")  # the last member's entry in the directory
    content[entry + 8] |= 1  # its flags
    (tmp_path / "x.zip").write_bytes(content)
    (problem,) = check_submission(tmp_path / "x.zip")
    assert str(problem) == "AX.tsv: is encrypted; pack it without a password"
