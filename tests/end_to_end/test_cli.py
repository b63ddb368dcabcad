"""Errors on the command line: one line per problem on standard error, exit code 2, before torch is imported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from distill.config import recipes
from distill.errors import SIGNALS
from tests.forked import PYTHON
from tests.small import content

RECIPE = "recipe=distilbert"
NAMES = ", ".join(recipes())
TEACHERS = "bert_base, embedded, ensemble, hub, none, roberta_base"
NOTHING = (
    f"recipe: got nothing; must be one of {NAMES}; start with recipe=auto teacher.name=MODEL tasks.train=FILE, or see "
    "python -m distill recipes"
)
TRAPPED = 77
"""Exit code of a process that imports torch where it must not."""

Done = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH with a module that ends the process when it imports torch or another slow package."""
    folder = tmp_path_factory.mktemp("trap")
    (folder / "sitecustomize.py").write_text(
        "import os, sys\n"
        "slow = {'torch', 'transformers', 'accelerate', 'datasets', 'onnxruntime', 'matplotlib'}\n"
        f"sys.addaudithook(lambda event, given: os._exit({TRAPPED}) if event == 'import' and given[0] in slow else 0)\n"
    )
    return folder


def distill(folder: Path, *arguments: str, trap: Path | None = None, **environment: str) -> Done:
    paths = [str(trap)] if trap else []
    environment["PYTHONPATH"] = os.pathsep.join([*paths, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable if trap else PYTHON, "-m", "distill", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | environment,
        timeout=200,
    )


IN_TURN = """
import builtins, contextlib, io, json, sys, traceback

sys.path.append(".")
called, answers = [], []
builtins.print = lambda *given, **_: called.append(given)
from distill import __main__

for words in json.load(sys.stdin):
    sys.argv, errors, printed = ["distill", *words], io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(printed):
            __main__.main()
        code = 0
    except SystemExit as ended:
        code = ended.code
    except Exception:
        code = "raised"
        errors.write(traceback.format_exc())
    answers.append([code, errors.getvalue().splitlines(), len(called), printed.getvalue()])
sys.stdout.write(json.dumps(answers))
"""


def in_turn(folder: Path, commands: list[list[str]], trap: Path, **environment: str) -> list[Any]:
    """Runs several command lines in one process, because a process for each would take seconds.

    Returns of each its exit code ("raised" for an exception, whose traceback is among the lines), the lines of standard
    error, the number of calls of `print` until then, and standard output.
    """
    done = subprocess.run(
        [sys.executable, "-B", "-c", IN_TURN],
        input=json.dumps(commands),
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(trap), os.environ.get("PYTHONPATH", "")])} | environment,
        timeout=200,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


WRONG: list[tuple[list[str], list[str]]] = [
    ([], [NOTHING]),
    (
        ["recipe=distilbrt"],
        ["recipe: got distilbrt; must be a choice that exists; did you mean distilbert, paper/distilbert?"],
    ),
    (
        ["stages.pretrain.temprature=3"],
        [
            NOTHING,
            "stages.pretrain.temprature: got 3; must be a setting that exists; did you mean "
            "stages.pretrain.temperature, stages.pretrain.generator, stages.pretrain.teacher?",
        ],
    ),
    (
        [RECIPE, "stages.pretrain.temprature=3"],
        [
            "stages.pretrain.temprature: got 3; must be a setting that exists; did you mean "
            "stages.pretrain.temperature, stages.pretrain.generator, stages.pretrain.teacher?"
        ],
    ),
    (["temperature=-1"], [NOTHING, "temperature: got -1.0; must be > 0; 2 is usual"]),
    ([RECIPE, "teacher=embeded"], ["teacher: got embeded; must be a choice that exists; did you mean embedded?"]),
    (
        [
            RECIPE,
            *("student.layers=3", "temprature=3", "temperature=-1", "seed=-1", "tasks.names=[cola]"),
            "+student.layer=[0]",
        ],
        [
            "student.layers: got 3; must be a list, as in KEY=[a,b]; see docs/settings.md",
            "temprature: got 3; must be a setting that exists; did you mean temperature?",
            "student.layer: got [0]; must be a setting that exists; did you mean layers?",
            "temperature: got -1.0; must be > 0; 2 is usual",
            "seed: got -1; must be >= 0; 0 is the default",
            "tasks.names: got cola; must be one of package, corrupted, body, order, overlap; "
            "choose from package, corrupted, body, order, overlap",
        ],
    ),
    (
        ["-m", RECIPE, "temperature=-1,2", "seed=-1"],
        [
            "job 0 (temperature=-1): temperature: got -1.0; must be > 0; 2 is usual",
            "job 0 (temperature=-1): seed: got -1; must be >= 0; 0 is the default",
            "job 1 (temperature=2): seed: got -1; must be >= 0; 0 is the default",
        ],
    ),
]
"""(arguments, lines of standard error)"""


@pytest.mark.slow
def test_a_wrong_command_prints_one_line_per_problem(trap: Path, tmp_path: Path) -> None:
    done = distill(tmp_path, *WRONG[1][0], trap=trap)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", WRONG[1][1])
    answers = in_turn(tmp_path, [arguments for arguments, _ in WRONG], trap)
    assert [answer[1] for answer in answers] == [expected for _, expected in WRONG]
    assert all((code, called, printed) == (2, 0, "") for code, _, called, printed in answers)
    assert {p.name for p in tmp_path.rglob("*") if p.is_file()} <= {"multirun.yaml"}, "nothing is begun"


def test_help_names_recipes_and_choices(trap: Path, tmp_path: Path) -> None:
    done = distill(tmp_path, "--help", trap=trap)
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m distill recipe=prune teacher.name=FOLDER" in done.stdout
    assert re.search(r"^  distilbert +half the layers", done.stdout, re.MULTILINE)
    assert re.search(f"^  teacher +{TEACHERS}$", done.stdout, re.MULTILINE)
    assert not any(tmp_path.iterdir())


@pytest.mark.slow
def test_a_traceback_is_printed_on_request(trap: Path, tmp_path: Path) -> None:
    done = distill(tmp_path, RECIPE, "temperature=-1", trap=trap, HYDRA_FULL_ERROR="1")
    assert done.returncode not in (0, TRAPPED)
    assert "Traceback (most recent call last)" in done.stderr
    assert "temperature" in done.stderr
    settings = [["temprature=3"], ["temperature=-1,-2", "-m"]]
    answers = in_turn(tmp_path, [[RECIPE, *words] for words in settings], trap, HYDRA_FULL_ERROR="1")
    for (code, errors, *_), (setting, *_) in zip(answers, settings, strict=True):
        assert code not in (None, 0)
        assert "Traceback (most recent call last):" in errors
        assert setting.partition("=")[0] in "\n".join(errors)


@pytest.mark.slow
def test_the_trap_ends_a_process_that_imports_torch(trap: Path, tmp_path: Path) -> None:
    assert distill(tmp_path, RECIPE, "limit=smoke", trap=trap).returncode == TRAPPED


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    """A folder with a recipe of the user."""
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "x.yaml").write_text(
        "# @package _global_\n"
        "defaults:\n  - /recipe/distilbert\n  - override /limit: smoke\n  - _self_\n"
        "pipeline: [adapt, pretrain]\n"
        "student:\n  layers: [0, 2]\n"
    )
    return tmp_path


@pytest.mark.slow
def test_a_recipe_of_the_user_runs(mine: Path) -> None:
    done = distill(mine, "--config-dir", "mine", "recipe=x")
    assert (done.returncode, done.stderr) == (0, "")
    assert (mine / "outputs" / "x" / "default" / "pretrain" / "model.safetensors").is_file()


RECIPES = [
    ("", f"recipe: got y0; must be a choice that exists; choose from {NAMES}, x"),
    ("temperature: 3\n", "recipe/y1.yaml: got no package; must begin with '# @package _global_'; add that line"),
    (
        "defaults: [/recipe/prune, /stage@stages.more: distil_tasks, _self_]\nseed: 1\n",
        "recipe/y2.yaml: got no package; must begin with '# @package _global_'; add that line",
    ),
    (
        "# @package _global_\ntemprature: 3\n",
        "temprature: got this key in recipe/y3.yaml; must be a setting that exists; did you mean temperature?",
    ),
    (
        "# @package _global_\ntemperature: warm\n",
        "temperature: got a value of another type in recipe/y4.yaml; must be a number; correct the file",
    ),
    ("# @package _global_\nstages: [\n", "recipe/y5.yaml, line 3: got "),
]
"""(text of a recipe, start of the line that refuses it)"""


@pytest.mark.slow
def test_a_wrong_recipe_of_the_user_is_refused_in_one_line(mine: Path, trap: Path) -> None:
    for number, (text, _) in enumerate(RECIPES):
        if text:
            (mine / "mine" / "recipe" / f"y{number}.yaml").write_text(text)
    commands = [["--config-dir", "mine", f"recipe=y{number}"] for number in range(len(RECIPES))]
    for (code, errors, called, printed), (_, expected) in zip(in_turn(mine, commands, trap), RECIPES, strict=True):
        assert (code, called, printed) == (2, 0, "")
        (line,) = errors
        assert line.removeprefix(f"{mine}/mine/").startswith(expected)


OWN = {
    "callbacks": "callbacks: {x: {_target_: builtins.print, _args_: [called]}}",
    "job_logging": "job_logging: {root: {handlers: [x]}, handlers: {x: {(): builtins.print}}}",
    "hydra_logging": "hydra_logging: {root: {handlers: [x]}, handlers: {x: {(): builtins.print}}}",
    "searchpath": "searchpath: [pkg://package_of_theirs]",
    "output_subdir": "{run: {dir: .}, output_subdir: .}",
    "plain": "{}",
}
"""Recipe -> its settings below `hydra`."""

COMMANDS = [
    ("recipe=callbacks", "hydra.callbacks: got {'x': {'_target_': 'builtins.print', "),
    ("recipe=callbacks --cfg job", "hydra.callbacks: got "),
    ("recipe=hydra_logging --info all", "hydra.hydra_logging: got "),
    ("-m recipe=plain,job_logging", "hydra.job_logging: got "),
    ("hydra/callbacks=chosen", "hydra.callbacks: got "),
    ("recipe=searchpath", "hydra.searchpath: got this key in recipe/searchpath.yaml; must be left out; "),
    ("recipe=output_subdir", "hydra.output_subdir: got .; must be left out"),
    (
        "hydra/launcher=theirs hydra/sweeper=theirs",
        "hydra.launcher._target_: got package_of_theirs.Launcher; must be one of ",
        "hydra.sweeper._target_: got ${hydra.job.name}; must be one of ",
    ),
    # A primary config can add packages to the search path.
    ("--config-name primary", "--config-name: got primary; must be config; "),
    ("--config-path {mine} --config-name primary", "--config-path: got {mine}; must be "),
    ("--config-path pkg://package_of_theirs", "--config-path: got pkg://package_of_theirs; must be "),
    (
        "recipe=functions +term@stages.pretrain.terms.x=theirs",
        "stages.pretrain.optimizer.betas.0._target_: got builtins.print; must not be set",
        "stages.../x: got ../x as the name of a stage; must be letters, digits, - and _",
        "stages.pretrain.terms.x.loss._target_: got builtins.print; must be one of distill.losses.",
    ),
    (
        "recipe=resolvers",
        "{mine}/recipe/resolvers.yaml, line 3: got ${oc.create:{_target_: builtins.print}}; must be a value or the",
    ),
    # Hydra would resolve these while it composes, and show the value as the name of a choice that does not exist.
    ("recipe=environment", "{mine}/recipe/environment.yaml, line 2: got ${oc.env:PATH}; must be a value or the name"),
    ("-m recipe=environment,plain", "{mine}/recipe/environment.yaml, line 2: got ${oc.env:PATH}; must be a value or"),
    ("recipe=plain term@x=${oc.env:PATH}", "term@x: got ${oc.env:PATH}; must be a value or the name of"),
    ("recipe=aliases", "{mine}/recipe/aliases.yaml: got 1e+12 values, with those that aliases repeat; must be at most"),
    ("recipe=itself", "defaults: got configs that name each other without end; must end; "),
    ("tasks.text=${seed}${seed}:", "recipe: got nothing; "),
    # Logging configs and launchers that Hydra ships are accepted: only the temperature is refused.
    (
        "temperature=-1 hydra/job_logging=stdout hydra/hydra_logging=default hydra.verbose=true hydra/launcher=basic",
        "temperature: got -1.0; ",
    ),
]
"""(arguments, start of each line that refuses them)"""

FUNCTIONS = """
defaults: [/recipe/distilbert]
stages:
  ../x: {kind: train}
  pretrain: {optimizer: {betas: [{_target_: builtins.print}, 0.9]}}
"""
"""A recipe that names functions, and a stage whose folder would be outside the run folder."""

RESOLVERS = """
defaults: [/recipe/distilbert]
teacher: {weights: '${oc.create:{_target_: builtins.print}}'}
stages:
  pretrain: {optimizer: {betas: "${oc.decode:'[{_target_: builtins.print},0.9]'}"}}
"""


@pytest.mark.slow
def test_hydra_calls_no_function_that_a_config_names(mine: Path, trap: Path) -> None:
    folder = mine / "mine"
    for name, setting in OWN.items():
        text = f"# @package _global_\nhydra:\n  {setting}\n"
        (folder / "recipe" / f"{name}.yaml").write_text(text)
    groups = {
        "recipe/functions": f"# @package _global_{FUNCTIONS}",
        "recipe/resolvers": f"# @package _global_{RESOLVERS}",
        "recipe/environment": "# @package _global_\ndefaults: [/recipe/distilbert, /term@x: '${oc.env:PATH}']",
        "recipe/aliases": f"# @package _global_\na0: &a0 [{'1,' * 9}1]\n"
        + "\n".join(f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)),
        "recipe/itself": "# @package _global_\ndefaults: [/recipe/itself]",
        "hydra/callbacks/chosen": "x: {_target_: builtins.print}",
        "hydra/launcher/theirs": "_target_: package_of_theirs.Launcher",
        "hydra/sweeper/theirs": "_target_: ${hydra.job.name}",
        "term/theirs": "loss: {_target_: builtins.print, _partial_: true}",
        "primary": "hydra: {run: {dir: .}, output_subdir: null, searchpath: [pkg://package_of_theirs]}",
    }
    for name, text in groups.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.yaml").write_text(f"{text}\n")
    (mine / "package_of_theirs").mkdir()
    (mine / "package_of_theirs" / "__init__.py").write_text("print('imported')\n")
    before = content(mine)
    commands = [[text.replace("{mine}", str(folder)) for text in texts] for texts in COMMANDS]
    given = [["--config-dir", "mine", *arguments.split()] for arguments, *_ in commands]
    wrong = {
        arguments: answer
        for (arguments, *expected), answer in zip(commands, in_turn(mine, given, trap), strict=True)
        if answer[0] != 2 or answer[2] or not all(any(line.startswith(e) for line in answer[1]) for e in expected)
    }
    assert wrong == {}
    assert {name: text for name, text in content(mine).items() if not name.endswith("multirun.yaml")} == before


@pytest.mark.quick(6)
@pytest.mark.usefixtures("real_compose")
@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("temperature=warm", "temperature: got warm; must be a number; "),
        ("seed=1.5", "seed: got 1.5; must be a whole number; "),
        ("seed=null", "seed: got null; must be a value, not null; "),
        ("seed=1,2", "seed: got 1,2; must be one value; add -m to run each in turn"),
        ("limit.smoke=perhaps", "limit.smoke: got perhaps; must be true or false; "),
        ("student.layers=[a]", "student.layers: got [a]; must be a whole number; "),
        ("pipeline=adapt", "pipeline: got adapt; must be a list, "),
        ("tasks.path=[a]", "tasks.path: got [a]; must be a string; "),
        ("stages.pretrain.batch=64", "stages.pretrain.batch: got 64; must be a group of settings, "),
        ("stages.pretrain.terms=3", "stages.pretrain.terms: got 3; must be a group of settings, "),
        ("teachr=embedded", "teachr: got embedded; must be a setting that exists; did you mean teacher?"),
        ("teacher=null", f"teacher: got null; must be a choice that exists; choose from {TEACHERS}"),
        ("+temperature=3", "temperature: got +temperature=3; must be without + where the setting exists; "),
        ("~stages.pretrain.terms.mlmm", "must be a setting that exists; did you mean stages.pretrain.terms.mlm,"),
        ("+term@stages.pretrain.terms.x=mlmm", "term: got mlmm; must be a choice that exists; did you mean mlm?"),
        ("+x@y=mlm", "x@y: got mlm; must be a setting that exists; choose from recipe, teacher, "),
        (
            "stages.finetune_baseline.epochs=5",
            "got 5; must be a setting that exists; set stages.finetune.epochs, which ",
        ),
        ("stages.finetune_baseline.teachr=finetune", "finetune; must be a setting that exists; did you mean "),
        ("stages.finetune_baseline.baseline_of=null", "baseline_of: got null; must be a value, not null; "),
        (
            "+stage@stages.more=baseline",
            "stages.more.baseline_of: got nothing; must be set; add stages.more.baseline_of=",
        ),
        ("temperature=${temprature}", "got ${temprature}; must be a setting that exists; did you mean temperature?"),
        ("pipeline=[", 'pipeline: got "["; must be a list, '),
        ("temperature", "command line: got recipe=distilbert temperature; must be settings; "),
        ("student=[{a: b}]", "command line: got recipe=distilbert student=[{a: b}]; must be settings; "),
    ],
)
def test_every_error_of_hydra_is_one_line(setting: str, expected: str) -> None:
    from distill.config import load_config
    from distill.pipeline.validation import hydra_errors

    with pytest.raises(Exception, match=r"\S") as caught:
        load_config([RECIPE, setting])
    (line,) = hydra_errors.messages(caught.value, [RECIPE, setting]) or []
    assert expected in line
    assert "\n" not in line


def test_a_bug_is_not_reported_as_a_wrong_setting() -> None:
    from distill.pipeline.validation import hydra_errors

    assert hydra_errors.messages(ValueError("a defect"), [RECIPE]) is None


STOPPED = """
import os, sys, time
from distill import __main__
from distill.pipeline import run

number = int(sys.argv.pop(1))


def at_work(*arguments):
    os.kill(os.getpid(), number)
    time.sleep(20)


run.run_pipeline = at_work
__main__.main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_ends_what_is_not_a_training_at_once(number: int, tmp_path: Path) -> None:
    subprocess.run([PYTHON, "-c", ""], check=True)  # the first of these processes starts their server
    words, began = ["recipe=distilbert", "limit=smoke", "output=a b"], time.monotonic()
    command = [PYTHON, "-c", STOPPED, str(int(number)), *words]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began < 15
    assert run.returncode == 128 + number
    assert run.stderr == "stopped; to go on, run: python -m distill recipe=distilbert limit=smoke 'output=a b'\n"
