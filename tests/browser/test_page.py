"""The page in a browser: sliders, toggles, clicks, keys, themes, a phone, paper, and texts that try to be code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from distill.config.loads import SINGLE_TEXTS
from distill.report.choose import Ask, choice, least_of, offered
from distill.report.variants import Run, groups, variants
from distill.runtime.storage.structs import plain
from tests.browser.conftest import Opened, committed
from tests.decoded import decoded
from tests.enriched import EVIL, disagreeing, enriched

pytestmark = pytest.mark.slow


def chosen(page: Any) -> str | None:
    """Name of the variant that the page has chosen."""
    button = page.locator("#choice .what button")
    return button.inner_text() if button.count() else None


def expected(run: Run, ask: Ask) -> str | None:
    found = choice([run], variants([run]), groups([run])[0], ask)["variant"]
    return None if found is None else found.name


def drag(page: Any, key: str, share: float) -> float:
    """Move a slider to a share of its way, as its input event; what its number then is."""
    page.evaluate(
        "([id, at]) => { const range = document.getElementById(id); range.value = at;"
        " range.dispatchEvent(new Event('input')); }",
        [f"{key}-range", 1000 * share],
    )
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return float(page.locator(f"#{key}-box").input_value())


def points(page: Any) -> list[list[Any]]:
    """[variant, x, y, opacity] of every drawn point."""
    return page.evaluate(
        "() => document.getElementById('figure').data.filter((trace) => trace.mode === 'markers').flatMap((trace) =>"
        " trace.customdata.map((variant, i) => [variant, trace.x[i], trace.y[i], trace.opacity]))"
    )


FIRST_ON_THE_FRONTIER = """() => {
    const figure = document.getElementById("figure"), { xaxis, yaxis } = figure._fullLayout;
    const trace = figure.data.find((one) => one.mode === "markers" && one.x.length && one.opacity === 1);
    const box = figure.getBoundingClientRect();
    const across = box.left + xaxis._offset + xaxis.d2p(trace.x[0]);
    return [across, box.top + yaxis._offset + yaxis.d2p(trace.y[0]), trace.customdata[0]];
}"""


def test_the_first_choice_is_the_verdict(opened: Opened, run: Run) -> None:
    page = opened([run])
    assert chosen(page) == expected(run, Ask(least_of([run.results])))
    assert chosen(page) in page.locator("#verdict .headline").inner_text()
    assert "distill.predict outputs/frontier/export/" in page.locator("#verdict pre").inner_text()


def test_sliders_choose_what_the_command_line_chooses(opened: Opened, run: Run) -> None:
    page = opened([run])
    seen = set()
    for least, ms, mib in (
        (0.0, 1.0, 1.0),
        (0.5, 1.0, 1.0),
        (0.8, 0.6, 1.0),
        (0.2, 0.3, 0.4),
        (0.9, 1.0, 0.3),
        (0.9, 0.0, 0.0),
    ):
        asked = [drag(page, "least", least), drag(page, "ms", ms), drag(page, "mib", mib)]
        found = expected(run, Ask(asked[0], False, asked[1], asked[2]))
        assert chosen(page) == found
        seen.add(found)
        faint = {variant for variant, *_, opacity in points(page) if opacity < 1}
        bright = [(x, y) for variant, x, y, opacity in points(page) if opacity == 1]
        assert not [1 for x, y in bright for a, b in bright if (a >= x and b > y) or (a > x and b >= y)]
        assert len(faint) + len(bright) == len(points(page))
    assert len(seen) > 2


def test_above_chance_under_20_mib(opened: Opened, run: Run) -> None:
    """The outsider's question, answered with the controls that he sees."""
    page = opened([run])
    page.select_option("#kind", "above")
    page.fill("#least-box", "95")
    page.fill("#mib-box", "20")
    page.wait_for_function("() => document.getElementById('choice').innerText.includes('20.0 MiB')")
    assert chosen(page) == expected(run, Ask(95.0, True, None, 20.0))
    assert "python -m distill.predict" in page.locator("#choice").inner_text()


def test_another_input_moves_the_points(opened: Opened, run: Run) -> None:
    page = opened([run])
    before = points(page)
    page.select_option("#input", "1x128")
    after = points(page)
    ratio = {variant: x for variant, x, *_ in after}
    assert all(ratio[variant] == pytest.approx(x * 0.8 / 0.9, rel=1e-3) for variant, x, *_ in before)
    assert "1x128" in page.locator("#figure").inner_text()
    page.select_option("#input", SINGLE_TEXTS)
    assert "single texts" in page.locator("#figure").inner_text()
    assert "At most milliseconds, single texts" in page.locator("#controls").inner_text()


def test_a_time_far_below_a_millisecond_is_shown_and_can_be_a_limit(opened: Opened, run: Run) -> None:
    results = plain(run.results)
    next(m for m in results["models"] if m["role"] == "student" and m.get("requests"))["requests"]["p50"] = 0.05
    page = opened([Run("a", decoded(results))])
    page.select_option("#input", SINGLE_TEXTS)
    assert "0.050" in page.locator("#rows").inner_text()
    assert 0.05 < drag(page, "ms", 0.5) < 10


def test_a_click_on_a_point_opens_its_panel(opened: Opened, run: Run) -> None:
    page = opened([run])
    page.locator("#figure").scroll_into_view_if_needed()
    x, y, variant = page.evaluate(FIRST_ON_THE_FRONTIER)
    page.mouse.move(x - 30, y - 30)
    page.mouse.move(x, y, steps=4)
    page.mouse.click(x, y)
    page.wait_for_selector("#panel[open]")
    assert page.locator("#panel-title").inner_text() == variants([run])[variant].name
    panel = page.locator("#panel").inner_text()
    for part in (
        "Load it",
        "Scores, in percent",
        "matthews",
        "Stages",
        "finetune_teacher",
        "Loss",
        "Calibration",
        "By length",
    ):
        assert part in panel
    page.wait_for_selector("#panel .plot .main-svg")
    assert run.results.command.split()[3] in panel
    page.keyboard.press("Escape")
    assert not page.locator("#panel").is_visible()


def test_the_panel_has_the_teacher_of_its_own_run(opened: Opened, run: Run) -> None:
    other = plain(run.results)
    other["command"] += " stages.finetune_teacher.epochs=1"
    teacher = next(model for model in other["models"] if model["role"] == "teacher" and model["scores"])
    for metrics in teacher["scores"].values():
        metrics |= {metric: value - 20 for metric, value in metrics.items()}
    runs = [run, Run("b", decoded(other))]
    page = opened(runs)
    student = next(v for v in enumerate(variants(runs)) if v[1].runs == (1,) and v[1].first.role == "student")[0]
    page.evaluate("place => panel(VARIANTS[place])", student)
    task, metrics = next(iter(teacher["scores"].items()))
    metric, value = next(iter(metrics.items()))
    cells = [row.locator("td").all_inner_texts() for row in page.locator("#panel tbody tr").all()]
    (shown,) = (float(row[3]) for row in cells if row[:2] == [task, metric])
    assert shown == pytest.approx(value, abs=0.06)


def test_the_table_sorts_and_filters(opened: Opened, run: Run) -> None:
    page = opened([run])
    rows = page.locator("#rows tbody tr")
    assert rows.count() == len(run.results.models)
    page.get_by_role("button", name="MiB").click()
    head = page.locator("#rows th").all_inner_texts()
    column = next(i for i, text in enumerate(head) if text.startswith("MiB"))
    sizes = [float(text) for text in page.locator(f"#rows td:nth-child({column + 1})").all_inner_texts()]
    assert sizes == sorted(sizes, reverse=True)
    assert page.locator("#rows th").nth(column).get_attribute("aria-sort") == "descending"
    page.fill("#filter", "int8 OPENVINO 2x")
    found = rows.locator("td:first-child").all_inner_texts()
    assert "student 2x, int8 openvino" in found
    assert all(word in text for text in found for word in ("int8", "openvino", "2x"))
    page.fill("#filter", "")
    page.check("#meeting")
    assert 0 < rows.count() < len(run.results.models)


def test_ties_are_marked_and_every_section_has_its_data(opened: Opened, run: Run) -> None:
    page = opened([run])
    heat = page.locator("#heat").inner_text()
    assert " =" in heat
    assert "near chance" in heat
    assert "own lengths" in page.locator("#figure").inner_text()
    for section, part in {
        "waterfall": "depth",
        "cost": "Price of a million inferences",
        "calibration": "ECE with it",
        "lengths": "17 to 64",
        "disagreements": "outputs/frontier/disagreements.json",
        "legend": "hollow: baseline",
    }.items():
        assert part in page.locator(f"#{section}").inner_text()
    assert page.locator("#frontier tbody tr").count() == len([p for p in points(page) if p[3] == 1])


def test_rows_on_which_several_students_differ_name_the_student(opened: Opened, run: Run) -> None:
    rows = disagreeing(["cola"], 2)
    named = [replace(row, name=f"student {n}", scheme="int8", backend="torch") for n, row in enumerate(rows)]
    page = opened([Run("a", run.results, named)])
    first = page.locator("#disagreements tbody tr td:first-child").all_inner_texts()
    assert first == ["student 0, int8 torch", "student 1, int8 torch"]
    page.fill("#mib-box", "0.1")
    page.wait_for_function("document.getElementById('choice').innerText.includes('No variant meets')")
    for section in ("waterfall", "cost", "disagreements"):
        assert page.locator(f"#{section}").inner_text() == "No variant is chosen."


def test_results_of_before_state_what_is_missing(opened: Opened) -> None:
    runs = [Run(name, decoded(committed(name))) for name in ("own-answers", "own-sentiment", "own-names")]
    page = opened(runs)
    assert page.locator("#kind option[value=above]").is_disabled()
    assert "no chance line" in page.locator("#legend").inner_text()
    for section in ("waterfall", "calibration", "lengths", "disagreements"):
        assert page.locator(f"#{section} .meta").count() == 1
    assert page.locator("#group option").count() == 3
    page.select_option("#group", "2")
    assert (
        "Ship" in page.locator("#verdict").inner_text()
        or "There are no variants" in page.locator("#verdict").inner_text()
    )


def test_where_no_variant_meets_the_sliders_each_condition_is_counted(opened: Opened) -> None:
    run = Run("glue", decoded(committed("glue-distilbert")))
    every, (group,) = variants([run]), groups([run])
    any_, retaining = (len(offered(every, group, Ask(least))) for least in (0.0, 97.0))
    small = sum(each.mib <= 20 for each in offered(every, group, Ask(0.0)))
    page = opened([run])
    assert "No student does; of the students, " in page.locator("#verdict").inner_text()
    assert "No student meets the conditions." in page.locator("#choice").inner_text()
    page.fill("#mib-box", "20")
    page.wait_for_function("document.getElementById('choice').innerText.includes('No variant meets')")
    shown = page.locator("#choice").inner_text()
    counted = f"a retained share: {any_}; that retain at least 97.0%: {retaining}; that have at most 20.0 MiB: {small}."
    assert counted in shown


def test_how_the_choice_is_made_is_said(opened: Opened, run: Run) -> None:
    results = plain(run.results)
    for model in results["models"]:
        if kept := model.get("retained"):
            kept["development"] = kept["headline"]
    page = opened([Run("a", decoded(results))])
    page.fill("#least-box", "85")
    page.wait_for_function("document.getElementById('choice').innerText.includes('85.0% on the development rows')")
    assert "by the scores on the development rows" in page.locator("#choice").inner_text()
    page.select_option("#kind", "above")
    assert "with the same scores that are shown" in page.locator("#choice").inner_text()
    page.fill("#least-box", "0")
    page.wait_for_function("document.getElementById('choice').innerText.includes('made without any score')")


def test_texts_stay_texts(opened: Opened, run: Run) -> None:
    results = plain(run.results)
    results["recipe"] = results["command"] = results["teacher_name"] = EVIL
    for model in results["models"]:
        model["name"] = EVIL + model["name"]
        model["scores"] = {EVIL + task: scores for task, scores in model["scores"].items()}
        model["recall"] = {EVIL: {EVIL: 50.0}}
    page = opened([Run(EVIL, decoded(enriched(results)), disagreeing([EVIL]))])
    page.locator("#table button.name").first.click()
    page.wait_for_selector("#panel[open]")
    assert page.title() == "Test"
    assert page.locator("img").count() == 0
    panel = page.locator("#panel").inner_text()
    for part in (
        f"{EVIL}, beside the score",
        f"{EVIL}, on the teacher's documents",
        "Detection of labels, in percent",
        "0.999999877",
        "Spans by type",
        "60.3",
    ):
        assert part in panel
    assert EVIL in page.locator("#disagreements").inner_text()


def test_keys_reach_everything(opened: Opened, run: Run) -> None:
    page = opened([run])
    page.keyboard.press("Tab")
    assert page.evaluate("() => document.activeElement.className") == "skip"
    page.focus("#least-range")
    before = page.locator("#least-box").input_value()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    assert float(page.locator("#least-box").input_value()) < float(before)
    page.locator("#choice button").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel[open]")
    assert page.evaluate("() => document.activeElement.innerText") == "Close"
    page.keyboard.press("Enter")
    assert not page.locator("#panel").is_visible()


def brightness(page: Any) -> int:
    colour = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3]))


def test_themes(opened: Opened, run: Run) -> None:
    page = opened([run], color_scheme="dark")
    assert brightness(page) < 200
    page.click("#theme")
    assert brightness(page) > 700
    page.click("#theme")
    assert brightness(page) < 200
    assert brightness(opened([run], color_scheme="light")) > 700


def test_a_phone_does_not_scroll_sideways(opened: Opened, run: Run) -> None:
    page = opened([run], viewport={"width": 360, "height": 780}, has_touch=True)
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    page.locator("#choice button").first.click()
    assert page.locator("#panel").bounding_box()["width"] <= 360


def test_paper(opened: Opened, run: Run, tmp_path: Path) -> None:
    page = opened([run], color_scheme="dark")
    page.emulate_media(media="print")
    assert brightness(page) > 700
    assert not page.locator("#controls").is_visible()
    assert page.pdf().startswith(b"%PDF")


def test_fifty_runs_of_thirty_variants(opened: Opened, run: Run) -> None:
    """Few nodes and few rows at first: what makes a large page open fast. Times are not asserted."""
    runs = []
    for number in range(50):
        results = plain(run.results) | {"command": f"{run.results.command} temperature={number}"}
        for model in results["models"]:
            model["name"] += f" t{number}"
            if model["speedup"]:
                row = model["speedup"]["by_input"]["own lengths"]
                row["median"] *= 1 + number / 100
        runs.append(Run(f"outputs/{number}", decoded(results)))
    page = opened(runs)
    scored = [variant for variant in variants(runs) if variant.retained and "own lengths" in variant.speedup]
    assert len(points(page)) == len(scored) > 1000
    assert page.locator("#rows tbody tr").count() == 60
    page.get_by_role("button", name="Show 600 more").click()
    assert page.locator("#rows tbody tr").count() == 660
    assert chosen(page) is not None
