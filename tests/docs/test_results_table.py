"""The results in the documents are generated from the committed JSON."""

from __future__ import annotations

import copy
import json
import re
import runpy
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from benchmarks import results_table
from benchmarks.tables import methods
from benchmarks.tables.runs import EXAMPLE, ROOT, float32_student, read
from distill.report import figure, model_rows
from distill.report.seeds import shown
from tests.decoded import decoded, decoded_all, model_of

complete = runpy.run_path(str(Path(__file__).parents[1] / "unit/report/conftest.py"))["complete"]

PARTS = {
    "README.md": ["results"],
    "docs/compress/quantize.md": ["quantize"],
    "docs/report.md": ["ending"],
    "docs/explain/corpora.md": ["corpus"],
    "docs/explain/cpu.md": ["attention"],
    "docs/explain/edited-inputs.md": ["edits"],
    "docs/explain/embedder-terms.md": ["embedder_terms"],
    "docs/explain/gpu.md": ["gpu"],
    "docs/explain/helped.md": ["levers", "chain"],
    "docs/explain/interruptions.md": ["chaos"],
    "docs/explain/libraries.md": ["frameworks", "step", "embedders", "startup"],
    "docs/explain/long-series.md": ["soak"],
    "docs/explain/not-helped.md": ["ablation"],
    "docs/explain/random-inputs.md": ["fuzz"],
    "docs/explain/results.md": ["compressed", "own", "kinds", "base"],
    "docs/explain/seeds.md": ["coverage"],
}
"""Page -> its generated parts."""
STEP: dict[str, Any] = {
    "environment": {"cpu": "Example CPU 9000", "threads": 2, "gpu": None, "torch": "2.13.0"},
    **{"teacher_layers": 12, "student_layers": 6, "hidden": 768, "vocabulary": 30522, "dropout": 0.0},
    **{"batch": 8, "length": 128, "masked": 152, "repeats": 7},
    "rows": [
        {
            "name": "all positions",
            "tokens_per_second": 1253.4,
            "median_ms": 817.0,
            "peak_mib": None,
            "speedup": {"median": 1.0, "ci95": [1.0, 1.0]},
        },
        {
            "name": "masked positions",
            "tokens_per_second": 4966.2,
            "median_ms": 206.2,
            "peak_mib": 540.4,
            "speedup": {"median": 3.96, "ci95": [3.71, 4.02]},
        },
    ],
}


@pytest.mark.skipif(not read(ROOT), reason="docs/results has no results.json yet")
def test_the_documents_are_those_of_the_committed_results(capsys: pytest.CaptureFixture[str]) -> None:
    assert results_table.main(["--check"]) == 0, capsys.readouterr().err


drawn = cache(figure.png)  # the same points give the same picture, which is drawn once for all tests


@pytest.fixture(autouse=True)
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def png(
        shown: list[figure.Point],
        smoke: bool = False,
        over: str = model_rows.REFERENCE,
        below: figure.Second | None = None,
    ) -> bytes:
        return drawn(tuple(shown), smoke, over, below)

    monkeypatch.setattr(figure, "png", png)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with two committed runs, `big` and `small`."""
    write_documents(tmp_path)
    small = complete()
    small["coverage"] = [row for row in small["coverage"] if row["task"] != "wnli"]
    for model in small["models"]:
        model.get("scores", {}).pop("wnli", None)
    small["models"][4]["name"] = "small <student>"
    small["smoke"] = True
    for name, results in {"big": complete(), "small": small}.items():
        write(tmp_path / "docs/results" / name / "results.json", results)
    write(tmp_path / "benchmarks/results/step.json", STEP)
    return tmp_path


def write_documents(root: Path) -> None:
    for page, parts in PARTS.items():
        marked = "between\n".join(f"<!-- {part}:begin -->\n<!-- {part}:end -->\n" for part in parts)
        (root / page).parent.mkdir(parents=True, exist_ok=True)
        (root / page).write_text(f"# Title\n{marked}end\n")


def write(path: Path, value: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_readme_shows_the_named_run_until_another_is_named(root: Path) -> None:
    assert results_table.main(["docs/results/small"], root) == 0
    first = (root / "README.md").read_text()
    assert "docs/results/small/results.json" in first
    assert "| small &lt;student&gt; |" in (root / "docs/results/small/README.md").read_text()
    assert first.startswith("# Title\n<!-- results:begin -->\n> **SMOKE RUN")
    assert results_table.main([], root) == 0
    assert (root / "README.md").read_text() == first
    assert results_table.main(["docs/results/big/"], root) == 0
    second = (root / "README.md").read_text()
    assert "small" not in second
    assert "| Student, int8 onnxruntime | 93.1 [92.0, 94.0] |" in second
    assert second.startswith("# Title\n<!-- results:begin -->\n| Model |")
    assert second.endswith("\n<!-- results:end -->\nend\n")
    assert "-->\nbetween\n<!--" in (root / "docs/explain/results.md").read_text()


@pytest.mark.parametrize("group", ["kinds", "base"])
def test_runs_with_controls_are_shown_over_seeds(root: Path, group: str) -> None:
    assert results_table.main([], root) == 0
    assert f"{group}:begin -->\nNo run is committed yet." in (root / "docs/explain/results.md").read_text()
    for seed in (0, 1):
        run = complete()
        run["seeds"] = [seed]
        for model in [m for m in run["models"] if m["role"] == "baseline"]:
            control = copy.deepcopy(model) | {"role": "self-trained", "name": "self-trained"}
            control["retained"]["headline"] += 2.0 + seed
            run["models"].append(control)
        form = ("student", "onnxruntime", "int8")
        student = next(m for m in run["models"] if (m["role"], m["backend"], m["scheme"]) == form)
        student["retained"]["headline"] += seed
        write(root / f"docs/results/{group}/names/seed{seed}/results.json", run)
    assert results_table.main([], root) == 0
    lines = (root / "docs/explain/results.md").read_text().splitlines()
    (row,) = (line for line in lines if line.startswith("| names |"))
    kind, target, _, teacher, int8, ours, baseline, control, seeds = (
        cell.strip() for cell in row.strip("|").split("|")
    )
    reference = model_rows.reference_teacher(decoded(complete()))
    assert reference is not None
    assert teacher == f"{reference.macro:.1f} ({reference.macro:.1f}, {reference.macro:.1f})"
    assert (kind, target, seeds) == ("names", "-", "0, 1")
    assert ours.startswith("93.6 [91.6, 95.6] (93.1, 94.1) at 5.20x (5.20, 5.20)")
    assert int8.count(" at ") == 1
    assert baseline.endswith(" (87.6, 87.6)")
    assert control.endswith(" (89.6, 90.6)")


def test_how_well_a_rare_label_is_found_is_shown_with_both_controls(root: Path) -> None:
    run, found = complete(), {"positives": 12, "negatives": 300, "roc_auc": 99.0, "threshold": 0.5, "chosen_on": 90}
    for number, model in enumerate([m for m in run["models"] if m["role"] in ("teacher", "student", "baseline")]):
        rare = found | {"average_precision": 80.0, "recall": 90.0 - number, "recall_ci95": [70.0, 95.0]}
        rare |= {"false_positives": 1.25, "roc_auc_ci95": None, "false_positives_ci95": None}
        model["detection"] = {"own": {"other": rare | {"positives": 300, "negatives": 12}, "alarm": rare}}
    write(root / "docs/results/kinds/guard/seed0/results.json", run)
    assert results_table.main([], root) == 0
    lines = (root / "docs/explain/results.md").read_text().splitlines()
    (row,) = (line for line in lines if line.startswith("| guard | alarm |"))
    whole, results = model_rows.reference_teacher(decoded(run)), decoded(run)
    student, (_, baseline) = model_rows.chosen(results, None), model_rows.pair(results, None) or (None, None)
    assert whole is not None
    assert student is not None
    assert baseline is not None
    recalls = [model.detection["own"]["alarm"].recall for model in (whole, student, baseline)]
    cells = [f"{recall:.1f} [70.0, 95.0] (1.2, 80.0)" for recall in recalls]
    assert row == f"| guard | alarm | {' | '.join(cells)} | - |"


def test_committed_results_show_no_row_of_a_data_set() -> None:
    shown = [path for path in (ROOT / "docs" / "results").rglob("results.json") if EXAMPLE.search(path.read_text())]
    assert shown == []
    for row in ("a 'text'", "it's", "both ' and \""):
        lines = json.dumps({"notes": [f"own: 2 rows are left out, e.g. {row!r}", "e.g. I-x at word 3"]}, indent=2)
        assert json.loads(EXAMPLE.sub("", lines))["notes"] == ["own: 2 rows are left out", "e.g. I-x at word 3"]


def two_seeds(root: Path) -> None:
    """Commit two seeds of a run that was pruned to 2x, 4x and 8x in int8 of ONNX Runtime. That of seed 1 has scores two
    points higher, and no student without a teacher for 2x."""
    form = {"backend": "onnxruntime", "scheme": "int8"}
    for seed in (0, 1):
        run = complete()
        run["seeds"], run["command"] = [seed], f"python -m distill recipe=frontier seed={seed}"
        (template,) = [m for m in run["models"] if m["role"] == "student" and {**m, **form} == m]
        models = []
        for target, retained in (("2x", 99.0), ("4x", 95.0), ("8x", 90.0)):
            for role, lost in (("student", 0.0), ("baseline", 10.0)):
                if (seed, target, role) != (1, "2x", "baseline"):
                    model = copy.deepcopy(template) | {"role": role, "name": role, "target": target}
                    model["retained"]["headline"] = retained - lost + 2 * seed
                    model["retained"]["above_chance"] = retained - 1 + 2 * seed
                    model["speedup"]["best_teacher"] = float(target[:-1]) + seed
                    models.append(model)
        teacher = copy.deepcopy(template) | {"role": "teacher", "name": "teacher", "target": None}
        teacher["retained"] |= {"headline": 99.5 + seed, "above_chance": 99.0}
        teacher["speedup"]["best_teacher"] = 1.5
        others = [m for m in run["models"] if m["role"] == "teacher" and {**m, **form} != m]
        run["models"] = [*others, teacher, *models]
        run["pruned"] = [
            {"step": "prune", "target": target, "layers": 2, "hidden": 64, "ffn": 96, **form}
            for target in ("2x", "4x", "8x")
        ]
        write(root / f"docs/results/frontier/seed{seed}/results.json", run)


def test_readme_has_the_teacher_in_both_forms_and_the_slowest_and_the_fastest_student(root: Path) -> None:
    two_seeds(root)
    assert results_table.main(["docs/results/frontier/seed0"], root) == 0
    text = (root / "README.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ")][2:]

    def both(*values: float) -> str:
        return shown(values, [(92.1, 94.1)] * 2).partition(" (")[0]

    assert rows == [
        "| Teacher, float32 | 100.0 | 100.0 | 1.00x |",
        f"| Teacher, int8 onnxruntime only | {both(99.5, 100.5)} | 99.0 (99.0, 99.0) | 1.50x (1.50 to 1.50) |",
        f"| Student for 2x, int8 onnxruntime | {both(99.0, 101.0)} | 99.0 (98.0, 100.0) | 2.50x (2.00 to 3.00) |",
        f"| Student for 8x, int8 onnxruntime | {both(90.0, 92.0)} | 90.0 (89.0, 91.0) | 8.50x (8.00 to 9.00) |",
    ]
    assert (
        "Retained %: mean and 95% interval over rows and seeds 0, 1. Speedup: mean (slowest to fastest seed) over "
        in text
    )
    assert "the same students retain 89.0% [92.0, 94.0] for 2x (1 seed, above chance 98.0) and 81.0% [" in text
    assert "] for 8x (2 seeds, above chance 90.0)." in text
    assert "\n```bash\npython -m distill recipe=frontier seed=0\n```\n" in text
    assert "](docs/results/frontier/README.md)" in text
    assert results_table.main(["docs/results/frontier"], root) == 0  # the name of the page: its first seed
    assert (root / "README.md").read_text() == text


def test_values_of_the_curve_stand_in_the_order_of_the_seeds(root: Path) -> None:
    """A seed without a baseline is seen, also where it comes between others in the order of the paths."""
    two_seeds(root)
    (root / "docs/results/frontier/seed0").rename(root / "docs/results/frontier/seed10")
    path = root / "docs/results/frontier/seed10/results.json"
    run = json.loads(path.read_text())
    run["seeds"] = [10]
    worst = [m["retained"]["worst"] for m in run["models"] if m["role"] == "student" and m["target"] == "2x"]
    worst[0]["task"] = "cola"
    path.write_text(json.dumps(run))
    (root / "docs/results/frontier/seed1").rename(root / "docs/results/frontier/seed2")
    assert results_table.main([], root) == 0
    lines = (root / "docs/explain/results.md").read_text().splitlines()
    (row,) = [line.split(" | ") for line in lines if line.startswith("| 2x")]
    assert row[2].endswith("] (101.0, 99.0)")
    assert row[4] == "rte 84.1, cola 84.1"
    assert row[5].startswith("89.0 [92.0, 94.0] (-, 89.0), above chance")
    assert row[-1] == "1, 10 |"
    page = (root / "docs/results/frontier/README.md").read_text()
    assert page.index("## Seed 1\n") < page.index("## Seed 10\n")


def test_the_forms_of_several_targets_stand_in_their_order(root: Path) -> None:
    two_seeds(root)
    for path in (root / "docs/results/frontier").rglob("results.json"):
        run = json.loads(path.read_text())
        for model in run["models"]:
            model["backend"] = "openvino" if model["target"] in ("2x", "8x") else model["backend"]
        path.write_text(json.dumps(run))
    assert results_table.main([], root) == 0
    text = (root / "docs/results/README.md").read_text()
    assert "2.50x, 4.50x, 8.50x (int8 openvino, int8 onnxruntime, int8 openvino) |" in text


def test_a_run_without_a_student_is_not_shown(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = complete()
    run["models"] = [model for model in run["models"] if model["role"] == "teacher"]
    write(root / "docs/results/teachers/results.json", run)
    assert results_table.main(["docs/results/teachers"], root) == 2
    assert "must have a student" in capsys.readouterr().err


def test_a_page_shows_the_step(root: Path) -> None:
    assert results_table.main([], root) == 0
    text = (root / "docs/explain/libraries.md").read_text()
    assert "| all positions | 1,253 | 817 | - | 1.00x [1.00, 1.00] |" in text
    assert "| masked positions | 4,966 | 206 | 540 | 3.96x [3.71, 4.02] |" in text
    assert "Batch 8 x 128, 152 masked positions" in text
    assert "7 rounds" in text
    assert "2 threads, Example CPU 9000, torch 2.13.0" in text


def test_every_run_has_its_page_and_its_picture(root: Path) -> None:
    assert results_table.main([], root) == 0
    big = (root / "docs/results/big/README.md").read_text()
    assert big.startswith("# big\n")
    assert "[docs/results](../README.md)" in big
    assert "\n```bash\nmake results NAME=big\n```\n" in big
    environment = complete()["environment"]
    assert f"| {environment['cpu']} | - | {environment['threads']} | {environment['torch']} |" in big
    assert "\n```bash\npython -m distill recipe=distilbert tasks=glue seed=0\n```\n" in big
    assert "- The teacher had no language-model head; a first stage fitted one." in big
    assert "- Training is partial: sst2 10,000 of 67,349 rows." in big
    assert "with 2 threads, on Example CPU 9000" in big
    for name in ("big", "small"):
        assert "](frontier.png)" in (root / "docs/results" / name / "README.md").read_text()
        assert (root / "docs/results" / name / "frontier.png").read_bytes().startswith(b"\x89PNG")


def test_the_index_has_a_row_for_each_page_in_its_group_newest_rules_first(root: Path) -> None:
    two_seeds(root)
    names = {"own-a": "", "own-b": "", "kinds/names/seed0": "", "own-0": "Scores chose.", "levers/none/seed0": ""}
    for name, older in names.items():
        run = complete() | ({"older_rules": older} if older else {})
        run["environment"]["commit"] = "0123456789ab-dirty"
        write(root / f"docs/results/{name}/results.json", run)
    assert results_table.main([], root) == 0
    text = (root / "docs/results/README.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith(("## ", "| ["))]
    shown = [line if line[0] == "#" else line.split("](")[0].removeprefix("| [") for line in lines]
    groups = ["## The curve", "frontier", "## Own files", "own-a", "own-b", "own-0", "## Kinds of tasks", "kinds/names"]
    assert shown[: len(groups)] == groups
    assert shown[-6:-2] == ["levers/none", "## History", "big", "small"]
    (row,) = (line.strip("| ").split(" | ") for line in lines if line.startswith("| [frontier]"))
    assert row[3] == "2x, 4x, 8x"
    assert row[7:] == ["0, 1", "100.0, 96.0, 91.0", "99.0, 95.0, 90.0", "2.50x, 4.50x, 8.50x (int8 onnxruntime)"]
    by_name = {line.split("](")[0]: line.strip("| ").split(" | ") for line in lines if line.startswith("| [")}
    assert by_name["| [own-a"][5:7] == ["0123456-dirty", "current"]
    assert by_name["| [own-0"][6] == "older"
    links = re.findall(r"\]\(([^)]+\.md)\)", text)
    assert len(links) == len({*links})
    assert [link for link in links if not link.startswith("../") and not (root / "docs/results" / link).exists()] == []


def test_speedups_on_two_processors_are_not_averaged(root: Path) -> None:
    for seed, cpu, speedup in ((0, "One", 2.0), (1, "Other", 8.0), (2, "One", 4.0)):
        run = complete()
        run["seeds"] = [seed]
        run["environment"]["cpu"] = cpu
        for model in run["models"]:
            if model.get("speedup"):
                model["speedup"]["best_teacher"] = speedup
        write(root / f"docs/results/two/seed{seed}/results.json", run)
    assert results_table.main([], root) == 0
    (row,) = (x for x in (root / "docs/results/README.md").read_text().splitlines() if x.startswith("| [two]"))
    assert "| One; Other |" in row
    assert row.endswith("| 3.00x; 8.00x (int8 onnxruntime) |")


def test_a_page_of_several_seeds_has_their_table_and_each_of_them(root: Path) -> None:
    two_seeds(root)
    assert results_table.main([], root) == 0
    page = (root / "docs/results/frontier/README.md").read_text()
    over = page[page.index("## Over seeds") : page.index("## Seed 0")]
    students = [row for row in over.splitlines() if "| student | onnxruntime |" in row]
    assert len(students) == 3
    assert all(row.endswith("| 0, 1 |") for row in students)
    assert page.count("\n## Seed ") == 2
    assert "](seed0/frontier.png)" in page[: page.index("## Seed 1")]
    assert "seed=1\n" in page[page.index("## Seed 1") :]


def test_a_page_whose_run_is_gone_is_found(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert results_table.main([], root) == 0
    (root / "docs/results/big/results.json").unlink()
    assert results_table.main(["docs/results/small"], root) == 0
    told = capsys.readouterr().err
    assert results_table.main(["--check"], root) == 1
    assert capsys.readouterr().err == told
    files = ("README.md", "frontier.png")
    assert told == "".join(f"docs/results/big/{file}: is of no committed run; remove it\n" for file in files)


def test_seeds_of_a_compression_are_one_row(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (0, 1):
        run = complete()
        run["seeds"], run["command"] = [seed], run["command"].replace("seed=0", f"seed={seed}")
        write(root / f"docs/results/frontier/one-seed{seed}/results.json", run)
    assert results_table.main([], root) == 0
    both = (root / "docs/results/compressed.md").read_text()
    (row,) = [line for line in both.splitlines() if "| student | onnxruntime | int8 |" in line]
    assert row.endswith("| 0, 1 |")
    assert "| 93.1 [92.1, 94.1] (93.1, 93.1) |" in row
    assert "](compressed.png)" in both
    (root / "docs/results/compressed.png").unlink()
    assert results_table.main(["--check"], root) == 1
    assert capsys.readouterr().err.startswith("docs/results/compressed.png")


def test_each_target_of_a_compression_is_one_row_of_the_curve(root: Path) -> None:
    """Student and baseline in the variant that was searched, not the fastest; gains of each seed."""
    for seed, extra in enumerate((0.0, 2.0)):
        run = complete()
        run["seeds"], run["command"] = [seed], run["command"].replace("seed=0", f"seed={seed}")
        for model in run["models"]:
            if model["role"] in ("student", "baseline"):
                model["target"] = "4x"
        form = {"backend": "onnxruntime", "scheme": "int8"}
        run["pruned"] = [{"step": "prune", "target": "4x", "layers": 2, "hidden": 64, "ffn": 96, **form}]
        student, baseline = ({"name": name, **form} for name in ("student", "baseline"))
        ours = next(m for m in run["models"] if all(m[key] == value for key, value in student.items()))
        ours["retained"]["headline"] += extra
        test = {"a": baseline, "b": student, "scope": None, "test": "bootstrap", "p": 0.01, "p_corrected": 0.01}
        run["tests"] = [
            test | {"difference": -3.0 - extra, "ci95": [-4.0 - extra, -2.0 - extra], "distinguishable": True}
        ]
        write(root / f"docs/results/frontier/one-seed{seed}/results.json", run)
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/results.md").read_text()
    (row,) = [line.split(" | ") for line in page.splitlines() if "| 4x" in line]
    assert row[1] == "int8 onnxruntime"
    assert row[2] == shown([93.1, 95.1], [(92.1, 94.1)] * 2)
    assert row[4] == "rte 84.1, 84.1"
    assert row[6] == shown([3.0, 5.0], [(2.0, 4.0), (4.0, 6.0)], "+.1f")  # paired by seed
    assert row[6].endswith(" (+3.0, +5.0)")
    assert row[8:] == ["2 x 64 x 96", complete()["environment"]["cpu"], "0, 1 |"]


def test_what_a_teacher_has_seen_stands_beside_the_curve(root: Path) -> None:
    run = complete()
    run["pruned"] = [{"step": "prune", "target": None, "layers": 2, "hidden": 64, "ffn": 96}]
    run["command"] = "python -m distill recipe=frontier target.speedup=8 seed=0"
    for name, count in (("bert-base", 0), ("all-mpnet-base-v2 (folder x)", 1)):
        write(root / "docs/results/frontier/eight/results.json", run | {"teacher_name": name})
        assert results_table.main(["docs/results/frontier/eight"], root) == 0
        text = (root / "docs/explain/results.md").read_text()
        assert text.count("The teacher all-mpnet-base-v2 was trained before on SNLI, MultiNLI") == count


def test_a_run_with_one_target_is_a_row_of_the_curve(root: Path) -> None:
    """Its target has no name, so that its speedup is that of the command."""
    run = complete()
    run["command"] = "python -m distill recipe=frontier target.speedup=8 seed=0"
    run["environment"] |= {"cpu": "Some(R) Processor", "cpu_flags": "avx2 amx_int8"}
    run["pruned"] = [
        {"step": "prune", "target": None, "layers": 2, "hidden": 64, "ffn": 96, "backend": "torch", "scheme": "fp32"}
    ]
    write(root / "docs/results/frontier/eight/results.json", run)
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/results.md").read_text()
    (row,) = [line.split(" | ") for line in page.splitlines() if "| 8x" in line]
    assert row[8:] == ["2 x 64 x 96", "Some, AMX", "0 |"]


def test_methods_are_not_called_worse_than_the_control() -> None:
    """What is not shown to be better may be; and of equal predictions no interval is known."""
    form, made = {"scheme": "fp32", "backend": "torch"}, {}
    gains: dict[str, tuple[float, list[float] | None]] = {
        "layer-drop": (0.0, None), "one": (1.0, [-1.0, 3.0]), "other": (2.0, [1.0, 3.0]), "same": (0.0, None)
    }  # fmt: skip
    for name, (gain, ends) in gains.items():
        run = complete()
        test = {"a": {"name": "student", **form}, "b": {"name": "baseline", **form}, "scope": None, "p": 0.5}
        test |= {"test": "bootstrap", "difference": gain, "ci95": ends, "distinguishable": False}
        run["tests"] = [test] if name != "layer-drop" else []
        made[f"recipes/{name}/seed0"] = run
    text = methods.page(dict(zip(made, decoded_all(made.values()), strict=True)))
    not_shown = (
        "Not shown to be better than layer_drop, because the interval of the gain is not above 0: one, same. The"
    )
    assert not_shown in text
    assert "The intervals are not corrected for the number of methods" in text
    assert "| other | +2.0 [+1.0, +3.0] |" in text
    assert "| same | +0.0 |" in text


@pytest.mark.parametrize(
    ("group", "page"), [("levers", "docs/explain/helped.md"), ("ablation", "docs/explain/not-helped.md")]
)
def test_settings_of_a_recovery_are_rows_of_what_was_tried(root: Path, group: str, page: str) -> None:
    for lever, development in (("transfer-5x", (90.0, 92.0)), ("none", (80.0, None))):
        for seed, apart in enumerate(development):
            run = complete()
            run["seeds"] = [seed]
            student = next(m for m in run["models"] if float32_student(model_of(m)))
            student["retained"]["development"] = apart
            write(root / f"docs/results/{group}/{lever}/seed{seed}/results.json", run)
    assert results_table.main([], root) == 0
    text = (root / page).read_text()
    rows = {line.split(" | ")[0]: line for line in text.splitlines() if line.endswith(" | 0, 1 |")}
    assert list(rows) == ["| none", "| transfer 5x"]
    assert "| 91.0 (90.0, 92.0) |" in rows["| transfer 5x"]
    assert "| 80.0 (80.0, -) |" in rows["| none"]  # seed 1 has no score on development rows
    name = f"{group}/transfer-5x"
    assert f"| [{name}]({name}/README.md) |" in (root / "docs/results/README.md").read_text()
    comparison = (root / f"docs/results/{group}.md").read_text()
    assert rows["| transfer 5x"] in comparison
    assert f"[{name}]({name}/README.md)" in comparison
    assert "frontier.png" not in (root / "docs/results" / name / "README.md").read_text()
    assert not list((root / "docs/results" / group).rglob("*.png"))


def test_targets_that_were_cut_in_two_ways_are_compared(root: Path) -> None:
    for way, targets in (("cut-from-the-teacher", ("2x", "4x")), ("chain", ("4x", "8x"))):
        run = complete()
        students = [m for m in run["models"] if m["role"] == "student"]
        others = [m for m in run["models"] if m["role"] != "student"]
        run["models"] = others + [copy.deepcopy(m) | {"target": target} for target in targets for m in students]
        run["pruned"] = [
            {"step": "prune", "target": target, "layers": 2, "hidden": 64, "ffn": 96} for target in targets
        ]
        write(root / f"docs/results/{way}/seed0/results.json", run)
    assert results_table.main([], root) == 0
    text = (root / "docs/explain/helped.md").read_text()
    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| 4x") or line.startswith("| 8x")]
    assert [(row[0], row[1]) for row in rows] == [("| 4x", "the teacher"), ("| 4x", "the student before it")]
    assert all(row[2] == "93.1 [92.0, 94.0]" and row[6:] == ["2 x 64 x 96", "0 |"] for row in rows)


QUANTIZED: dict[str, Any] = {
    "environment": {"cpu": "Example CPU 9000", "threads": 2, "torch": "2.13.0", "onnxruntime": "1.31.1"}
    | {"openvino": None, "torchao": None},
    **{"layers": 12, "hidden": 768, "batch": 8, "length": 128, "repeats": 7, "fastest_float32": "onnxruntime fp32"},
    "rows": [
        {
            **{"backend": "onnxruntime", "scheme": "int8", "mib": 110.2, "median_ms": 181.04},
            "speedup": {"median": 2.4, "ci95": [2.3, 2.5]},
        },
    ],
}


def test_the_page_on_quantizing_shows_the_quantized_variants(root: Path) -> None:
    write(root / "benchmarks/results/quantize.json", QUANTIZED)
    assert results_table.main([], root) == 0
    text = (root / "docs/compress/quantize.md").read_text()
    assert "| onnxruntime | int8 | 110 | 181.0 | 2.40x [2.30, 2.50] |" in text
    assert "2 threads, Example CPU 9000, torch 2.13.0, onnxruntime 1.31.1. Speedup: over onnxruntime fp32" in text


def test_check_finds_every_difference_and_writes_nothing(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert results_table.main([], root) == 0
    assert results_table.main(["--check"], root) == 0
    changed = complete()
    best = model_rows.chosen(decoded(changed))
    next(m for m in changed["models"] if model_of(m) == best)["retained"]["headline"] = 99.9
    write(root / "docs/results/big/results.json", changed)
    (root / "docs/results/small/frontier.png").unlink()
    before = {path: path.read_bytes() for path in root.rglob("*.md")}
    assert results_table.main(["--check"], root) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "README.md",
        "docs/results/big/README.md",
        "docs/results/README.md",
        "docs/pictures/curve.svg",
        "docs/results/small/frontier.png",
    ]
    assert {path: path.read_bytes() for path in root.rglob("*.md")} == before
    step = copy.deepcopy(STEP)
    step["rows"][1]["tokens_per_second"] = 4967.4
    assert results_table.main([], root) == 0
    write(root / "benchmarks/results/step.json", step)
    assert results_table.main(["--check"], root) == 1
    assert capsys.readouterr().err.startswith("docs/explain/libraries.md:")


def test_a_number_typed_by_hand_is_found(root: Path) -> None:
    assert results_table.main([], root) == 0
    readme = root / "README.md"
    readme.write_text(readme.read_text().replace("| 93.1 [", "| 98.1 ["))
    assert results_table.main(["--check"], root) == 1


def test_documents_without_results(tmp_path: Path) -> None:
    write_documents(tmp_path)
    assert results_table.main([], tmp_path) == 0
    text = (tmp_path / "README.md").read_text()
    assert "No result is committed yet." in text
    for page in ("docs/compress/quantize.md", "docs/explain/libraries.md"):
        assert "Not measured yet." in (tmp_path / page).read_text()
    assert "No run is committed yet." in (tmp_path / "docs/explain/results.md").read_text()
    assert "No result is committed yet." in (tmp_path / "docs/results/README.md").read_text()


def test_a_page_shows_frameworks(root: Path) -> None:
    rows = [
        {
            "size": "base", "way": way, "training_rows": 1920, "seconds": [seconds, 90.0, 10.0],
            "tokens_per_second": 700.0, "peak_mib": 2000.0, "speedup": {"median": speedup, "ci95": [speedup] * 2},
            "accuracy": 0.7, "agreement": 0.912, "teacher_accuracy": 0.75, "kl": 0.1,
        }
        for way, seconds, speedup in (("distill", 50.0, 3.2), ("trainer", 80.0, 1.0))
    ]  # fmt: skip
    facts = {"cpu": "Example CPU", "threads": 2, "torch": "2.13", "transformers": "5.23", "textbrewer": "0.2.1"}
    write(
        root / "benchmarks/results/frameworks.json",
        {"environment": facts, "batch": 32, "epochs": 3, "max_length": 128, "rows": rows},
    )
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/libraries.md").read_text()
    assert "| base, 1,920 rows | distill | 50.0 | 700 | 2,000 | 3.20x [3.20, 3.20] | 70.0 | 91.2 | 0.10 |" in page
    assert "The teacher's accuracy: 75.0% (base)." in page


def test_a_page_shows_startup_and_corpora(root: Path) -> None:
    facts = {"cpu": "Example CPU", "threads": 2, "torch": "2.13", "tokenizers": "0.22"}
    start = {"until": "help", "command": "--help", "seconds": [0.61, 0.52, 0.5]}
    size = {"mib": 40, "seconds": 8.0, "stored_mib": 31.4, "peak_mib": 1234.0}
    serving = [{"artifact": "onnxruntime int8", "seconds": [0.42, 0.38, 0.3], "mib": [101.2, 99.0, 100.0]}]
    more = {"serving": serving, "packages": {"numpy": 54.6, "tokenizers": 11.2}}
    write(root / "benchmarks/results/startup.json", {"environment": facts, "rows": [start], **more})
    write(root / "benchmarks/results/corpus.json", {"environment": facts, "rows": [size]})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/libraries.md").read_text()
    assert "| help | python -m distill --help | 0.5 | 0.6 |" in page
    assert "| first prediction, onnxruntime int8 | distill.load | 0.4 | 0.4 |" in page
    assert "onnxruntime int8: 101 MiB resident after it." in page
    assert "MiB of the packages that serving needs: 66 (numpy 55, tokenizers 11)." in page
    assert "| 40 | 8.0 | 5.0 | 31 | 1,234 |" in (root / "docs/explain/corpora.md").read_text()


def test_a_page_shows_embedders(root: Path) -> None:
    facts = {"cpu": "Example CPU", "threads": 2, "torch": "2.13", "sentence-transformers": "6.2"}
    ours = {
        "way": "distill_similarities",
        "seconds": [30.0, 31.0, 32.0],
        "speedup": {"median": 2.5, "ci95": [1.2, 5.1]},
    }
    usual = {"way": "sentence_transformers", "seconds": [72.0, 80.6, 80.0], "speedup": {"median": 1.0, "ci95": [1, 1]}}
    scores = {"cosine": 0.912, "spearman": 0.951}
    rows = [{"way": "start", "cosine": 0.61, "spearman": 0.7}, {**ours, **scores}, {**usual, **scores}]
    settings = {"batch": 32, "epochs": 3, "learning_rate": 1e-4, "texts": 1920}
    write(root / "benchmarks/results/embedders.json", {"environment": facts, **settings, "rows": rows})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/libraries.md").read_text()
    assert "| the student to begin with | - | - | 0.610 | 0.700 |" in page
    assert "| distill, heavy term on similarities | 31.0 | 2.50x [1.20, 5.10] | 0.912 | 0.951 |" in page
    assert "In brackets: the 95% interval of the speedup." in page
    for row in rows[1:]:
        row["seconds"] = row["seconds"][:2]  # from which an interval says nothing, also if one is stored
    write(root / "benchmarks/results/embedders.json", {"environment": facts, **settings, "rows": rows})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/libraries.md").read_text()
    assert "| distill, heavy term on similarities | 30.5 | 2.50x (2.40, 2.60) | 0.912 | 0.951 |" in page
    assert "Medians of 2 rounds. In parentheses: the speedup in each of the two rounds. 2 threads" in page


def test_a_page_shows_the_terms_of_embedders(root: Path) -> None:
    of_seeds = [
        {"rows": "texts", "weights": [0.05, 1.0], "seed": seed, "metric": "Spearman", "score": 80.0 + seed}
        | {"teacher_score": 90.0, "cosine": 70.0 + 10 * seed}
        for seed in (0, 2)
    ]
    sizes = {"training_rows": 2000, "scored_rows": 500}
    measured = {"environment": {"torch": "2.13"}, **sizes, "rows": of_seeds}
    write(root / "benchmarks/results/embedder_terms.json", measured)
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/embedder-terms.md").read_text()
    assert "| texts | Spearman | 0.05 | 1 | 81.0 (80.0, 82.0) | 80.0 (70.0, 90.0) | 90.0 |" in page
    assert "Mean over 2 seeds, and the value of each" in page


def test_a_page_sums_what_was_done_to_runs(root: Path) -> None:
    disturbed = [{"how": how, "moment": 1.0, "at": "open run/x"} for how in ("killed", "full", "killed")]
    one = {"recipe": "prune", "processes": 1, "disturbances": disturbed, "damages": ["a: a bit"]}
    rows = [
        {**one, "lost": [], "different": ["x", "y"]},
        {**one, "processes": 2, "lost": ["exit code 1"], "different": []},
    ]
    write(root / "benchmarks/results/chaos.json", {"environment": {}, "rows": rows})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/interruptions.md").read_text()
    assert "| prune | 1 | 2 | 0 | 0 | 1 | 1 | 0 | 1 |" in page
    assert "| prune | 2 | 2 | 0 | 0 | 1 | 1 | 1 | 0 |" in page
    assert "| all |  | 4 | 0 | 0 | 2 | 2 | 1 | 1 |" in page


def test_a_page_sums_what_became_of_edits(root: Path) -> None:
    ends = [("equal", "equal"), ("refused", "equal"), ("told", "stale")]
    rows = [
        {"kind": kind, "runs": {"same folder": {"outcome": one}, "same cache": {"outcome": two}}}
        for kind, (one, two) in zip(("cell", "seed", "cell"), ends, strict=True)
    ]
    write(root / "benchmarks/results/edits.json", {"environment": {}, "rows": rows})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/edited-inputs.md").read_text()
    assert "| cell | 2 | 4 | 2 | 0 | 1 | 1 |" in page
    assert "| seed | 1 | 2 | 1 | 1 | 0 | 0 |" in page
    assert "| all | 3 | 6 | 3 | 1 | 1 | 1 |" in page


def test_a_page_shows_random_cases(root: Path) -> None:
    rows = [{"kind": "model folders", "accepted": 1200, "refused": 34, "seconds": 1.0}]
    write(root / "benchmarks/results/fuzz.json", {"environment": {}, "rows": rows})
    assert results_table.main([], root) == 0
    assert "| model folders | 1,234 | 1,200 | 34 |" in (root / "docs/explain/random-inputs.md").read_text()


def test_a_page_shows_whether_long_series_grow(root: Path) -> None:
    same = {"files": 20, "threads": 9, "processes": 0, "temporary": 2, "shared_memory": 0}
    rows = [
        {"series": series, "seconds": 60.0 * n, "runs": n // 2, "memory_mib": base + n, **same}
        for n in range(1, 25)
        for series, base in (("sweep", 900.0), ("calls", 1000.0))
    ]
    write(root / "benchmarks/results/soak.json", {"environment": {}, "minutes": 24, "rows": rows})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/long-series.md").read_text()
    assert "| sweep | 3 | 1 | 902 | 20 | 9 | 0 | 2 | 0 |" in page
    assert "| calls | 24 | 12 | 1,023 | 20 | 9 | 0 | 2 | 0 |" in page


def test_a_page_shows_attention(root: Path) -> None:
    kinds = {
        kind: {"ms": ms, "speedup": 400 / ms} for kind, ms in (("sdpa", 400.0), ("eager", 320.4), ("quick", 250.0))
    }
    facts = {"environment": {"cpu": "Example CPU", "threads": 2, "torch": "2.13"}, "repeats": 5}
    write(root / "benchmarks/results/attention.json", facts | {"rows": [{"dropout": 0.1, "length": 64, **kinds}]})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/cpu.md").read_text()
    assert "| 0.1 | 64 | 400 | 320 | 250 | 1.60x |" in page


def test_a_page_shows_steps_on_a_gpu(root: Path) -> None:
    sizes = {
        "kind": "task distillation",
        "rows": 32,
        "length": 16,
        "way": "and CUDA graphs",
        "ms_of_rounds": [4.4, 4.5],
    }
    row = sizes | {"ms": 4.4, "tokens_per_second": 116363.6, "speedup": 3.59, "share": 0.0394}
    facts = {"environment": {"gpu": "Example GPU", "torch": "2.13"}, "matrix_flops": 7.58e14}
    write(root / "benchmarks/results/gpu.json", facts | {"rows": [row]})
    assert results_table.main([], root) == 0
    page = (root / "docs/explain/gpu.md").read_text()
    assert "| task distillation | 32 x 16 | and CUDA graphs | 4.4 | 116,364 | 3.59x | 4 |" in page
    assert "758 TFLOP/s. Medians of 2 rounds of ten steps; one Example GPU, torch 2.13." in page


@pytest.mark.parametrize(
    ("arguments", "lost", "message"),
    [
        (
            ["docs/results/bog"],
            "",
            "docs/results/bog/results.json: got no such file; must be a committed run; choose of big, small",
        ),
        ([], "<!-- results:end -->", "README.md: got no results markers"),
        ([], "<!-- quantize:end -->", "docs/compress/quantize.md: got no quantize markers"),
    ],
)
def test_errors_are_one_line(
    root: Path, arguments: list[str], lost: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for document in (root / "README.md", root / "docs/compress/quantize.md"):
        document.write_text(document.read_text().replace(lost, "") if lost else document.read_text())
    assert results_table.main(arguments, root) == 2
    error = capsys.readouterr().err
    assert error.startswith(message)
    assert len(error.splitlines()) == 1
    assert not (root / "docs/results/README.md").exists()
