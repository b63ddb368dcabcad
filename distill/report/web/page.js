"use strict";
// Draws the page from the JSON in #data. Every text from the data goes through textContent or `plain`, never into HTML.

const DATA = JSON.parse(document.getElementById("data").textContent);
const FORMS = DATA.forms, RUNS = DATA.runs, MANY = DATA.runs.length > 1;
FORMS.forEach((form, id) => { form.id = id; });
const OFFERED = ["student", "teacher"]; // baselines are controls, and pruned models are not trained yet
const FEW = 60, PAGE = 60;              // points with intervals, rows of a table at first
const LIGHT = DATA.colours.light, DARK = DATA.colours.dark; // backend -> colour
const SHAPES = [["circle", "●", "○"], ["square", "■", "□"], ["diamond", "◆", "◇"], ["triangle-up", "▲", "△"],
  ["triangle-down", "▼", "▽"], ["pentagon", "⬟", "⬠"], ["hexagon", "⬢", "⬡"], ["star-square", "✦", "✧"]];
const state = { group: 0, above: false, input: null, least: 0, ms: null, mib: null, focus: null, sort: ["fit", -1],
  filter: "", meeting: false, rows: PAGE, heat: PAGE / 3 };

// ---- small tools

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}
const $ = (id) => document.getElementById(id);
const fill = (id, ...children) => $(id).replaceChildren(...children.flat().filter((child) => child));
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;"); // for plotly
const formats = [0, 1, 2, 3, 4].map((digits) => new Intl.NumberFormat("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }));
const fixed = (value, digits = 1) => (value === null || value === undefined ? "-" : formats[digits].format(value));
const note = (text) => el("p", { class: "meta" }, text);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function ends(value, digits) {
  if (!value || value[1] === null) return "";
  return value[3] ? ` ± ${fixed((value[2] - value[1]) / 2, digits)}` : ` [${fixed(value[1], digits)}, ${fixed(value[2], digits)}]`;
}
const shown = (value, digits, unit = "") => (value ? fixed(value[0], digits) + unit + ends(value, digits) : "-");
function dark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
function colour(backend) {
  const palette = dark() ? DARK : LIGHT;
  return palette[backend] || (dark() ? "#c9ced4" : "#5f666d");
}

// ---- what is asked for

const cached = { members: [], targets: [] }; // of the group that is shown

const group = () => DATA.groups[state.group];
const members = () => cached.members;
const kept = (form) => (state.above ? form.above : form.raw);
const speed = (form) => form.speedup[state.input] || null;
const taken = (form) => form.ms[state.input] ?? null;
const placed = (form) => kept(form) && speed(form);
const label = (form) => `${form.name}, ${form.scheme} ${form.backend}`;
const where = (form) => RUNS[form.runs[0]].folder + (form.runs.length > 1 ? ` and ${form.runs.length - 1} more` : "");
const within = (value, most) => most === null || (value !== null && value !== undefined && value <= most);
const meets = (form, asked = state) => Boolean(placed(form)) && kept(form)[0] >= asked.least && within(taken(form), asked.ms) && within(form.mib, asked.mib);
const offered = (form, asked = state) => OFFERED.includes(form.role) && meets(form, asked);

function ranked(forms) {
  return [...forms].sort((a, b) => speed(b)[0] - speed(a)[0] || kept(b)[0] - kept(a)[0]);
}
function frontier(forms) { // those that no other form beats in both speed and what is retained
  let best = -Infinity;
  return ranked(forms).filter((form) => (kept(form)[0] > best ? ((best = kept(form)[0]), true) : false)).reverse();
}
function knee(line) { // the point farthest from the chord between the ends of the frontier, both axes scaled to 0..1
  if (line.length < 3) return null;
  const [first, last] = [line[0], line[line.length - 1]];
  const x = (form) => (speed(form)[0] - speed(first)[0]) / (speed(last)[0] - speed(first)[0] || 1);
  const y = (form) => (kept(form)[0] - kept(last)[0]) / (kept(first)[0] - kept(last)[0] || 1);
  const height = (form) => x(form) + y(form) - 1;
  const best = line.slice(1, -1).reduce((a, b) => (height(b) > height(a) ? b : a));
  return height(best) > 0 ? best : null;
}
function test(a, b, scope) {
  for (const run of a.runs.filter((index) => b.runs.includes(index)).map((index) => RUNS[index])) {
    run.index ||= new Map(run.tests.map((row) => [row.slice(0, 3).join("\n"), row.slice(3)]));
    const same = run.index.get([a.key, b.key, scope].join("\n")), turned = run.index.get([b.key, a.key, scope].join("\n"));
    if (same) return { difference: same[0], interval: same[1], p: same[2], distinct: same[3] };
    if (turned) return { difference: -turned[0], interval: [-turned[1][1], -turned[1][0]], p: turned[2], distinct: turned[3] };
  }
  return null;
}
const mark = (target) => SHAPES[Math.max(cached.targets.indexOf(target), 0) % SHAPES.length];
const shape = (form) => (form.role === "teacher" ? ["star", "★", "☆"] : mark(form.target));

// ---- controls

function slider(key, title, values, most, digits) {
  const sorted = values.filter((value) => value !== null && value !== undefined && value > 0);
  if (!sorted.length) return el("div", { class: "control" }, el("span", {}, title), note("Not measured."));
  const step = 10 ** -digits;
  const low = Math.floor(Math.min(...sorted) / step) * step, high = Math.ceil(Math.max(...sorted) / step) * step;
  const log = most && high / low > 4; // sizes and times span decades
  const place = (value) => (log ? 1000 * Math.log(value / low) / Math.log(high / low) : 1000 * (value - low) / (high - low || 1));
  const at = (position) => (log ? low * (high / low) ** (position / 1000) : low + (high - low) * position / 1000);
  const start = state[key] ?? high;
  const range = el("input", { type: "range", min: 0, max: 1000, step: 1, "aria-label": title, id: `${key}-range` });
  const box = el("input", { type: "number", step: "any", min: 0, "aria-label": `${title}, exact`, id: `${key}-box` });
  range.value = place(Math.min(Math.max(start, low), high));
  box.value = start.toFixed(digits);
  range.addEventListener("input", () => {
    const end = most ? range.value === "1000" : range.value === "0";
    box.value = (end ? (most ? high : low) : at(Number(range.value))).toFixed(digits);
    set(Number(box.value));
  });
  box.addEventListener("input", () => {
    if (box.value === "" || !Number.isFinite(Number(box.value))) return;
    range.value = place(Math.min(Math.max(Number(box.value), low), high));
    set(Number(box.value));
  });
  const set = (value) => { state[key] = most && value >= high ? null : value; later(); };
  return el("div", { class: "control" }, el("span", {}, title), el("div", { class: "row" }, range, box));
}

function picker(id, title, options, chosen, change) {
  const select = el("select", { id, onchange: () => change(select.value) }, options.map(([value, text, off]) =>
    el("option", { value, selected: value === chosen, disabled: off }, text)));
  return el("div", { class: "control" }, el("label", { for: id }, title), select);
}

function controls() {
  const every = members(), noChance = !every.some((form) => form.above);
  const amounts = (pick) => every.filter(placed).map(pick);
  const parts = [];
  if (DATA.groups.length > 1) {
    const options = DATA.groups.map((one, index) => [String(index), one.title]);
    const which = picker("group", "Runs with the same tasks, teacher and machine", options, String(state.group), (value) => { start(Number(value)); $("group").focus(); });
    parts.push(which);
  }
  parts.push(slider("least", `At least retained, % ${state.above ? "above chance" : "of the score"}`, amounts((form) => kept(form)[0]), false, 1));
  parts.push(slider("ms", `At most milliseconds, ${/^\d+x\d+$/.test(state.input) ? state.input : "own lengths"}`, amounts(taken), true, 1));
  parts.push(slider("mib", "At most MiB", amounts((form) => form.mib), true, 1));
  parts.push(picker("kind", "Retained is a share of", [["raw", "the teacher's score"],
    ["above", `what that score has above chance${noChance ? " (not measured in these runs)" : ""}`, noChance]],
  state.above ? "above" : "raw", (value) => { state.above = value === "above"; state.focus = null; controls(); draw(); $("kind").focus(); }));
  const usable = group().inputs.filter((name) => every.some((form) => form.speedup[name]));
  parts.push(picker("input", "Speed is measured with", usable.map((name) => [name, /^\d+x\d+$/.test(name) ? `${name} (batch x length)` : name]),
    state.input, (value) => { state.input = value; state.ms = null; state.focus = null; controls(); draw(); $("input").focus(); }));
  const [which, sliders, pickers] = [parts.slice(0, -5), parts.slice(-5, -2), parts.slice(-2)];
  fill("controls", which, el("div", { class: "three" }, sliders), el("div", { class: "two" }, pickers));
}

let pending = 0;
function later() {
  state.focus = null;
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(draw);
}

// ---- the choice

function loading(form) {
  const { command, code, path, note: remark } = form.loading;
  const parts = [command && el("pre", {}, el("code", {}, command)), code && el("pre", {}, el("code", {}, code))];
  if (!command && !code && path) parts.push(note(`Its files: ${path}`));
  return [...parts, remark && note(remark)];
}
function open(form, text) {
  return el("button", { type: "button", class: "name", onclick: () => panel(form) }, text || label(form));
}
function numbers(form) {
  const parts = [`retains ${shown(kept(form), 1, "%")}`, `${shown(speed(form), 2, "x")} as fast`];
  if (taken(form) !== null) parts.push(`${fixed(taken(form))} ms`);
  if (form.mib !== null) parts.push(`${fixed(form.mib)} MiB`);
  return parts.join(", ");
}
function against(best, next) {
  const row = test(best, next, null);
  if (row && best.runs.length === 1) {
    const size = `${row.difference > 0 ? "+" : ""}${fixed(row.difference)} points [${fixed(row.interval[0])}, ${fixed(row.interval[1])}], p = ${fixed(row.p, 3)}`;
    return row.distinct ? ` Their scores differ on the same rows: ${size}.` : ` Their scores are not distinguishable: ${size}.`;
  }
  const [a, b] = [kept(best), kept(next)];
  if (a[1] === null || b[1] === null) return " Whether their scores differ was not tested.";
  return a[1] <= b[2] && b[1] <= a[2] ? " Their intervals overlap and no paired test of the two is stored, so no difference is shown."
    : " Their intervals do not overlap.";
}
function conditionsOf(asked) {
  return [asked.least > 0 && `retain at least ${fixed(asked.least)}%`, asked.ms !== null && `take at most ${fixed(asked.ms)} ms`,
    asked.mib !== null && `have at most ${fixed(asked.mib)} MiB`].filter(Boolean);
}
function nearest() { // for each condition, the form that comes nearest to it of those that meet the others
  const ways = [["least", 0, "retains the most", (form) => kept(form)[0]], ["ms", null, "is the fastest", (form) => speed(form)[0]],
    ["mib", null, "is the smallest", (form) => -(form.mib ?? Infinity)]];
  return ways.filter(([key, none]) => state[key] !== none).map(([key, none, word, good]) => {
    const asked = { ...state, [key]: none }, found = ranked(members().filter((form) => offered(form, asked))).sort((a, b) => good(b) - good(a));
    const rest = conditionsOf(asked);
    return found.length && el("p", {}, `Of those ${rest.length ? `that ${rest.join(" and ")}` : "measured"}, `, open(found[0]), ` ${word}: it ${numbers(found[0])}.`);
  });
}
function students(best) { // the best one, where the choice is the teacher in another scheme
  if (best.role !== "teacher") return null;
  const relaxed = { ...state, least: 0 }, rest = conditionsOf(relaxed);
  const every = ranked(members().filter((form) => form.role === "student" && offered(form, relaxed)));
  const fitting = every.filter((form) => offered(form)), found = fitting[0] || every[0];
  return found && el("p", {}, fitting.length ? "Of the students, " : `No student does; of the students${rest.length ? ` that ${rest.join(" and ")}` : ""}, `, open(found), ` is the fastest: it ${numbers(found)}.`);
}
function choice(best, next, count) {
  const conditions = conditionsOf(state).length ? conditionsOf(state) : ["have a speed and a retained share"];
  if (!best) return [el("p", { class: "what" }, `No form is left: of those measured with ${state.input}, none does all of this: ${conditions.join(", ")}.`), ...nearest()];
  return [
    el("p", { class: "what" }, "Fastest: ", open(best), ` ${numbers(best)}.`),
    next ? el("p", {}, "Next: ", open(next), ` ${numbers(next)}.`, against(best, next)) : el("p", {}, "No other form meets the conditions."),
    students(best),
    ...loading(best),
    el("p", { class: "meta" }, `${count} of ${members().filter(placed).length} scored forms ${conditions.join(", ")}. The choice is made `
      + "with the same scores that are shown, so expect the chosen form to retain slightly less on new rows."),
  ];
}

// ---- the figure

function around(value, index) { return value[1] === null ? 0 : Math.max(index === 1 ? value[0] - value[1] : value[2] - value[0], 0); }
function bars(forms, pick, visible) {
  return !visible || !forms.length ? { visible: false } : { type: "data", symmetric: false, thickness: 1, width: 2, array: forms.map((form) => around(pick(form), 2)),
    arrayminus: forms.map((form) => around(pick(form), 1)) };
}
function layout(x, y) {
  const axis = { gridcolor: style("--line"), zeroline: false, linecolor: style("--line"), automargin: true, title: { standoff: 8 } };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style("--ink"), size: 13 }, showlegend: false, colorway: Object.values(dark() ? DARK : LIGHT),
    margin: { l: 55, r: 15, t: 18, b: 45 }, hovermode: "closest", xaxis: { ...axis, title: { ...axis.title, text: x } },
    yaxis: { ...axis, title: { ...axis.title, text: y } }, hoverlabel: { bgcolor: style("--panel"), font: { color: style("--ink") }, align: "left" },
    shapes: [], annotations: [], dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom" };
}
const SETTINGS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };

function hover(form) {
  const lines = [`<b>${plain(label(form))}</b>`, MANY ? plain(where(form)) : "", `retained of the score ${shown(form.raw, 1, "%")}`,
    form.above ? `retained above chance ${shown(form.above, 1, "%")}` : "", `speedup ${shown(speed(form), 2, "x")} with ${plain(state.input)}`,
    `${fixed(taken(form))} ms, ${fixed(form.mib)} MiB`, form.runs.length > 1 ? `mean of ${form.runs.length} seeds` : "", "click for more"];
  return lines.filter(Boolean).join("<br>");
}
function figure(line, best) {
  const every = members().filter(placed), on = new Set(line), few = every.length <= FEW;
  const traces = [...new Set(every.map((form) => form.backend))].flatMap((backend) => [true, false].map((front) => {
    const forms = every.filter((form) => form.backend === backend && on.has(form) === front);
    const ink = colour(backend);
    return { x: forms.map((form) => speed(form)[0]), y: forms.map((form) => kept(form)[0]), mode: "markers", type: "scatter", customdata: forms.map((form) => form.id),
      text: forms.map(hover), hovertemplate: "%{text}<extra></extra>", opacity: front ? 1 : 0.4,
      error_x: { ...bars(forms, speed, few || front), color: ink }, error_y: { ...bars(forms, kept, few || front), color: ink },
      marker: { color: ink, size: forms.map((form) => (form === best ? 17 : 11)), line: { width: forms.map((form) => (form === best ? 3 : 1)), color: forms.map((form) => (form === best ? style("--ink") : ink)) },
        symbol: forms.map((form) => shape(form)[0] + (form.role === "baseline" || form.role === "pruned" ? "-open" : "")) } };
  }));
  traces.unshift({ x: line.map((form) => speed(form)[0]), y: line.map((form) => kept(form)[0]), mode: "lines", type: "scatter", hoverinfo: "skip", line: { color: style("--soft"), width: 1.5 } });
  const chance = state.above ? 0 : group().chance;
  const narrow = $("figure").clientWidth < 600, input = state.input.length > 24 ? "own lengths" : plain(state.input);
  const plan = layout(narrow ? `speedup, ${input}` : `speedup over ${group().reference}, ${input}`, `retained %${state.above ? ", above chance" : ""}`);
  const levels = every.map((form) => kept(form)[0]);
  const reach = line.flatMap((form) => [kept(form)[1], kept(form)[2]]).filter((end) => end !== null);
  let low = Math.min(...levels, ...reach, 100), high = Math.max(...levels, ...reach, 100);
  const room = Math.max((high - low) * 0.12, 0.5);
  [low, high] = [low - room, high + room];
  const floor = Math.max(low, Math.min(...line.map((form) => kept(form)[0]), ...reach, state.least) - 12); // far below, nobody chooses
  const under = levels.filter((value) => value < floor).length;
  low = floor;
  plan.yaxis.range = [low, high];
  plan.xaxis.rangemode = "tozero";
  const level = (y, text, dash) => {
    plan.shapes.push({ type: "line", xref: "paper", x0: 0, x1: 1, y0: y, y1: y, line: { color: style("--soft"), width: 1, dash } });
    plan.annotations.push({ xref: "paper", x: 0, y, text, showarrow: false, xanchor: "left", yanchor: "bottom", font: { size: 11, color: style("--soft") } });
  };
  level(100, "teacher", "dot");
  if (chance !== null && chance >= low) level(chance, "chance", "dash");
  else if (chance !== null) plan.annotations.push({ xref: "paper", yref: "paper", x: 0, y: 0, xanchor: "left", yanchor: "bottom", showarrow: false, text: `chance is at ${fixed(chance)}%, below this axis`, font: { size: 11, color: style("--soft") } });
  if (state.least > low) level(state.least, "", "longdash");
  const bend = knee(line);
  for (const [form, text, side] of [[best, best && best === bend ? "choice and knee" : "choice", 1], [bend === best ? null : bend, "knee", -1]]) {
    if (form) plan.annotations.push({ x: speed(form)[0], y: kept(form)[0], text, ax: 26 * side, ay: -34 * side, arrowcolor: style("--ink"), arrowwidth: 1, arrowhead: 0, standoff: 8, bgcolor: style("--ground") });
  }
  if (!every.length) { if (window.Plotly) Plotly.purge("figure"); fill("figure", note("No form has both a speed and a retained share with this input.")); return; }
  legend(every, few, chance, under);
  asText(line, best, bend);
  if (!window.Plotly) return;
  if (!$("figure").data) $("figure").replaceChildren();
  Plotly.react("figure", traces, plan, SETTINGS);
  if (!figure.ready) {
    $("figure").on("plotly_click", (event) => { const id = event.points[0].customdata; if (id !== undefined) panel(FORMS[id]); });
    figure.ready = true;
  }
}
function asText(line, best, bend) {
  const head = ["Form", "Retained %", "Speedup", "ms", "MiB", ""];
  $("frontier").lastElementChild.replaceChildren(grid(head, line.map((form) => [open(form), shown(kept(form), 1), shown(speed(form), 2, "x"), fixed(taken(form)), fixed(form.mib),
    [form === best && "choice", form === bend && "knee"].filter(Boolean).join(", ")]), 1));
}
function legend(every, few, chance, under) {
  const item = (glyph, text, ink) => el("span", {}, el("b", { style: ink ? { color: ink } : {}, "aria-hidden": "true" }, glyph), text);
  const roles = new Set(every.map((form) => form.role));
  const parts = [...new Set(every.map((form) => form.backend))].map((backend) => item("●", backend, colour(backend)));
  const named = new Set(every.filter((form) => form.role !== "teacher").map((form) => form.target));
  parts.push(...cached.targets.filter((target) => named.has(target)).map((target) => item(mark(target)[1], target || "no target")));
  if (roles.has("teacher")) parts.push(item("★", "teacher"));
  if (roles.has("baseline")) parts.push(item("○", "hollow: baseline, trained without a teacher"));
  parts.push(item("—", "frontier of the forms that meet the sliders; others are dimmed"));
  if (every.some((form) => form.runs.length > 1)) parts.push(item("", "bars: 95% interval of one run, one standard deviation over several seeds"));
  else parts.push(item("", "bars: 95% intervals"));
  if (!few) parts.push(item("", `intervals are drawn on the frontier only, as there are ${every.length} points`));
  if (under) parts.push(item("", `${under} forms lie below the axis: double-click the figure to see all`));
  if (chance === null) parts.push(item("", "no chance line: chance was not measured in these runs"));
  fill("legend", parts);
}

// ---- tables

function grid(head, rows, texts, classes = []) {
  const cell = (tag, content, index, more = {}) => el(tag, { class: index >= texts ? "n" : null, ...more }, content);
  return el("div", { class: "wide", tabindex: "0" }, el("table", {},
    el("thead", {}, el("tr", {}, head.map((title, index) => cell("th", title, index, { scope: "col" })))),
    el("tbody", {}, rows.map((row, number) => el("tr", { class: classes[number] || null }, row.map((content, index) => cell("td", content, index)))))));
}
const COLUMNS = [
  ["name", "Form", (form) => label(form), (form) => open(form), true],
  ["run", "Run", (form) => where(form), null, true],
  ["role", "Role", (form) => form.role, null, true],
  ["target", "Target", (form) => form.target || "", null, true],
  ["raw", "Retained %", (form) => form.raw && form.raw[0], (form) => (form.failed ? "failed" : shown(form.raw, 1))],
  ["above", "Above chance %", (form) => form.above && form.above[0], (form) => shown(form.above, 1)],
  ["speedup", "Speedup", (form) => speed(form) && speed(form)[0], (form) => shown(speed(form), 2, "x")],
  ["ms", "ms", (form) => taken(form), (form) => fixed(taken(form))],
  ["p95", "p95 ms, single requests", (form) => form.requests && form.requests.p95, (form) => fixed(form.requests && form.requests.p95)],
  ["mib", "MiB", (form) => form.mib, (form) => fixed(form.mib)],
  ["parameters", "Parameters, M", (form) => form.parameters && form.parameters / 1e6, (form) => fixed(form.parameters && form.parameters / 1e6, 2)],
  ["seeds", "Seeds", (form) => form.runs.length, (form) => form.runs.flatMap((index) => RUNS[index].seeds).join(", ")],
];
const classOf = (form, best) => (form === best ? "chosen" : offered(form) ? form.role : `${form.role} unmet`);
function table(best) {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (form) => [label(form), form.role, form.target, form.settings, ...form.runs.map((index) => RUNS[index].folder)].join(" ").toLowerCase();
  const forms = members().filter((form) => (!state.meeting || offered(form)) && words.every((word) => text(form).includes(word)));
  const columns = COLUMNS.filter(([key, , value]) => key === "name" || (key === "run" || key === "seeds" ? MANY : members().some((form) => value(form) !== null && value(form) !== undefined && value(form) !== "")));
  const fit = (form) => (offered(form) ? 1000 : 0) + (speed(form) ? speed(form)[0] : 0); // at first, the forms to choose from
  const [key, way] = state.sort, value = key === "fit" ? fit : (columns.find((column) => column[0] === key) || columns[0])[2];
  const missing = (form) => value(form) === null || value(form) === undefined;
  forms.sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : typeof value(a) === "string" ? way * value(a).localeCompare(value(b)) : way * (value(a) - value(b))));
  const texts = columns.filter((column) => column[4]).length;
  const head = columns.map(([name, title, , , isText]) => el("button", { type: "button", class: isText ? null : "n", onclick: () => {
    state.sort = [name, state.sort[0] === name ? -state.sort[1] : isText ? 1 : -1]; table(best);
  } }, title + (name === key ? (way > 0 ? " ▲" : " ▼") : "")));
  const part = forms.slice(0, state.rows);
  const made = grid(head, part.map((form) => columns.map(([, , pick, show]) => (show || pick)(form))), texts, part.map((form) => classOf(form, best)));
  made.querySelectorAll("th").forEach((cell, index) => { if (columns[index][0] === key) cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending"); });
  const rest = forms.length - part.length;
  const more = rest > 0 && el("p", {}, el("button", { type: "button", onclick: () => { state.rows += 10 * PAGE; table(best); } }, `Show ${Math.min(rest, 10 * PAGE)} more of ${rest}`));
  const failed = forms.filter((form) => form.failed).map((form) => note(`${label(form)} failed: ${form.failed}`));
  if (!$("rows")) {
    const search = el("input", { type: "search", id: "filter", placeholder: "int8 openvino 2x", oninput: () => { state.filter = search.value; state.rows = PAGE; table(table.best); } });
    const only = el("input", { type: "checkbox", id: "meeting", onchange: () => { state.meeting = only.checked; table(table.best); } });
    fill("table", el("div", { class: "filters" }, el("label", {}, "Filter by words ", search), el("label", {}, only, " only forms that meet the sliders")), el("div", { id: "rows" }));
  }
  table.best = best;
  fill("rows", made, more, ...failed, note(`Click a name for its stages, scores and files. Faint rows do not meet the sliders or are not offered. Retained %: the share of the teacher's macro score${group().without}.`));
}

const score = (form, task) => (form.scores[task] ? mean(Object.values(form.scores[task])) : null);
function heat(line, best) {
  const tasks = group().tasks, teacher = group().teacher;
  const scored = members().filter((form) => Object.keys(form.scores).length);
  const order = ranked(scored.filter((form) => placed(form))).sort((a, b) => offered(b) - offered(a));
  const forms = [...new Set([...(best ? [best] : []), ...line, ...order, ...scored])];
  if (!tasks.length || !Object.keys(teacher).length) return fill("heat", note("The teacher was not scored, so scores have nothing to be compared with."));
  const references = members().filter((form) => form.role === "teacher");
  let tested = false;
  const tint = (difference) => `rgba(${style(difference < 0 ? "--down" : "--up")}, ${Math.min(Math.abs(difference) / 12, 1) * 0.55})`;
  const rows = forms.slice(0, state.heat).map((form) => [open(form, MANY ? `${label(form)}, ${where(form)}` : label(form)), ...tasks.map((task) => {
    const value = score(form, task);
    if (value === null || teacher[task] === undefined) return "-";
    const row = references.map((other) => (other === form ? null : test(form, other, task))).find(Boolean);
    tested = tested || Boolean(row);
    const constant = (form.near_constant || []).includes(task) ? " (near-constant)" : "";
    return el("span", { "data-tint": tint(value - teacher[task]) }, `${fixed(value)}${row && !row.distinct ? " =" : ""}${constant}`);
  })]);
  const head = ["Form", ...tasks.map((task) => `${task} (teacher ${fixed(teacher[task])}${group().near_chance.includes(task) ? ", near chance" : ""})`)];
  const made = grid(head, rows, 1, forms.map((form) => (form === best ? "chosen" : null)));
  made.querySelectorAll("[data-tint]").forEach((span) => { span.parentElement.style.background = span.dataset.tint; });
  const ties = tested ? "= marks a score that a paired test does not distinguish from the teacher's. " : "No paired tests are in these results, so ties with the teacher are not marked. ";
  const least = group().detectable ? `The smallest difference that each split can show, in points: ${Object.entries(group().detectable).map(([task, value]) => `${task} ${fixed(value)}`).join(", ")}.` : "";
  const rest = forms.length - state.heat;
  fill("heat", note("Mean of each task's metrics, in percent. Blue is above the teacher, orange below; the tint is full at 12 points."), made,
    rest > 0 && el("p", {}, el("button", { type: "button", onclick: () => { state.heat += 5 * PAGE; heat(line, best); } }, `Show more of ${rest}`)), note(ties + least));
}

// ---- sections about one form: the one that was clicked, else the choice

function calibration(form, place) {
  const every = form ? Object.entries(form.calibration || {}) : [];
  if (!every.length) return place.replaceChildren(note(form ? `Calibration by task is not in the results of ${label(form)}.` : "No form is chosen."));
  const plot = el("div", { class: "plot small", role: "img", "aria-label": "Reliability: accuracy against confidence; errors are in the table" });
  const traces = every.map(([task, row]) => ({ x: row.bins.map((bin) => bin[0]), y: row.bins.map((bin) => bin[1]), customdata: row.bins.map((bin) => bin[2]), name: plain(task), mode: "lines+markers", type: "scatter",
    hovertemplate: `${plain(task)}: %{customdata} rows with confidence %{x:.2f} have accuracy %{y:.2f}<extra></extra>` }));
  traces.unshift({ x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: style("--soft") }, name: "calibrated", hoverinfo: "skip" });
  place.replaceChildren(note(`${label(form)}. ECE is the expected calibration error: the mean distance of accuracy from confidence.`),
    plot, grid(["Task", "ECE", "Temperature", "ECE with it"], every.map(([task, row]) => [task, fixed(row.ece, 3), fixed(row.temperature, 2), fixed(row.ece_scaled, 3)]), 1));
  if (window.Plotly) Plotly.newPlot(plot, traces, { ...layout("confidence", "accuracy"), showlegend: true, legend: { font: { size: 11 } } }, SETTINGS);
}
function lengths(form, place) {
  const every = form ? Object.entries(form.by_length || {}) : [];
  if (!every.length) return place.replaceChildren(note(form ? `Scores by length are not in the results of ${label(form)}.` : "No form is chosen."));
  const rows = every.flatMap(([task, parts]) => parts.map((part) => [task, `${part.from} to ${part.to}`, fixed(part.rows, 0), Object.entries(part.scores).map(([metric, value]) => `${metric} ${fixed(value)}`).join(", ")]));
  place.replaceChildren(note(`${label(form)}.`), grid(["Task", "Length", "Rows", "Scores"], rows, 2));
}
function disagreements(form, place) {
  const found = form ? form.runs.map((index) => RUNS[index]).filter((run) => run.disagreements.length) : [];
  if (!found.length) return place.replaceChildren(note("There is no disagreements.json beside these results."));
  const rows = found.flatMap((run) => run.disagreements.map((row) => [row.task, row.split, String(row.row), Array.isArray(row.text) ? row.text.join(" | ") : typeof row.text === "object" && row.text ? Object.values(row.text).join(" | ") : String(row.text ?? ""), String(row.teacher), String(row.student), String(row.label)]));
  const counts = found.flatMap((run) => Object.entries(run.disagreeing)).map(([task, count]) => `${task} ${count}`).join(", ");
  const part = (count) => {
    const made = grid(["Task", "Split", "Row", "Text", "Teacher", "Student", "Label"], rows.slice(0, count), 7);
    made.querySelectorAll("tbody td:nth-child(4)").forEach((cell) => cell.classList.add("long"));
    return made;
  };
  const all = el("button", { type: "button", onclick: () => { place.children[1].replaceWith(part(rows.length)); all.remove(); } }, `Show all ${rows.length}`);
  place.replaceChildren(note(`Rows on which student and teacher differ, stored in ${found.map((run) => `${run.folder}/disagreements.json`).join(", ")}: ${counts}.`), part(20), ...(rows.length > 20 ? [all] : []));
}
function waterfall(form, place) {
  const run = form && RUNS[form.runs[0]];
  if (!run || !run.waterfall.length) return place.replaceChildren(note("The results do not take the speedup apart into depth, width, int8 and runtime."));
  const most = Math.max(...run.waterfall.map((row) => row.speedup));
  const rows = run.waterfall.map((row) => [row.step, el("span", { class: "bar", style: { width: `${12 * row.speedup / most}rem` } }), fixed(row.speedup, 2) + "x", row.retained === null ? "-" : fixed(row.retained)]);
  place.replaceChildren(note(`${run.folder}. Each row adds its step to those above it.`), grid(["Step", "", "Speedup", "Retained %"], rows, 2));
}
const COSTS = [["throughput_per_second", "Texts/s", 0], ["cold_start_ms", "Cold start, ms", 0], ["memory_mib", "Memory while serving, MiB", 0], ["energy_j", "Energy of a request, J", 3], ["cost_per_million", "Price of a million inferences", 2]];
function cost(line, best) {
  const forms = [...new Set([...(best ? [best] : []), ...line])];
  const columns = COSTS.filter(([key]) => forms.some((form) => form[key] !== null));
  const requests = forms.some((form) => form.requests);
  if (!forms.length || !(columns.length || requests)) return fill("cost", note("Throughput, memory, energy and price were not measured in these runs."));
  const head = ["Form on the frontier", ...columns.map((column) => column[1]), ...(requests ? ["p50 ms", "p95 ms", "p99 ms", "Requests"] : []), "MiB on disk"];
  const rows = forms.map((form) => [open(form), ...columns.map(([key, , digits]) => fixed(form[key], digits)),
    ...(requests ? ["p50", "p95", "p99"].map((key) => fixed(form.requests && form.requests[key])).concat(fixed(form.requests && form.requests.count, 0)) : []), fixed(form.mib)]);
  const lacking = [...new Set(forms.filter((form) => form.energy_j === null && form.energy_missing).map((form) => form.energy_missing))];
  const price = columns.some(([key]) => key === "cost_per_million") ? "" : "There is no price, as report.hourly_rate was not set. ";
  fill("cost", grid(head, rows, 1, forms.map((form) => (form === best ? "chosen" : null))), note(price + (lacking.length ? `Energy is missing: ${lacking.join("; ")}.` : "")));
}

// ---- the panel of a form

function panel(form) {
  state.focus = form;
  const runs = form.runs.map((index) => RUNS[index]), run = runs[0];
  const row = (name, value) => [name, value];
  const facts = [row("Role", form.role), row("Retained of the score", shown(form.raw, 1, "%")), row("Retained above chance", form.above ? shown(form.above, 1, "%") : "not measured"),
    row("Parameters", form.parameters === null ? "-" : `${fixed(form.parameters / 1e6, 2)} M`), row("Size", `${fixed(form.mib)} MiB`)];
  if (form.near_constant) facts.push(row("Nearly constant on", form.near_constant.join(", ")));
  if (form.failed) facts.push(row("Failed", form.failed));
  const reference = members().find((other) => other.role === "teacher" && Object.keys(other.scores).length);
  const speeds = [...new Set([...Object.keys(form.speedup), ...Object.keys(form.ms)])].map((name) => [name, shown(form.speedup[name], 2, "x"), fixed(form.ms[name] ?? null, 2)]);
  const interval = (task, metric) => { const found = form.score_ci95 && form.score_ci95[task] && form.score_ci95[task][metric]; return found ? ` [${fixed(found[0])}, ${fixed(found[1])}]` : ""; };
  const scores = Object.entries(form.scores).flatMap(([task, metrics]) => Object.entries(metrics).map(([metric, value]) => [task, metric, fixed(value) + interval(task, metric), fixed(reference ? (reference.scores[task] || {})[metric] : null)]));
  const recall = Object.entries(form.recall || {}).flatMap(([task, labels]) => Object.entries(labels).map(([name, value]) => [task, name, fixed(value)]));
  const stages = run.stages.filter((stage) => stage.target === null || stage.target === form.target);
  const logged = stages.filter((stage) => stage.log && stage.log.length > 1);
  const name = (stage) => stage.name + (stage.target ? ` ${stage.target}` : "");
  const curve = logged.length && el("div", { class: "plot small", role: "img", "aria-label": "Training loss; first and last values are in the table of stages" });
  const parts = { calibration: el("div"), lengths: el("div"), waterfall: el("div") };
  const close = el("button", { type: "button", class: "quiet", onclick: () => $("panel").close() }, "Close");
  fill("panel", el("header", {}, el("h2", { id: "panel-title" }, label(form)), close),
    el("h3", {}, "Load it"), ...loading(form), grid(["Fact", "Value"], facts, 2),
    speeds.length && [el("h3", {}, "Speed"), grid(["Input", "Speedup", "ms"], speeds, 1)],
    scores.length && [el("h3", {}, "Scores, in percent"), grid(["Task", "Metric", "Score", "Teacher"], scores, 2)],
    recall.length && [el("h3", {}, "Recall of each label, in percent"), grid(["Task", "Label", "Recall"], recall, 2)],
    el("h3", {}, "Stages"), grid(["Stage", "Seconds", "Tokens/s", "First loss", "Last loss"], stages.map((stage) => [name(stage), fixed(stage.seconds, 0), fixed(stage.tokens_per_second, 0),
      fixed(stage.log && stage.log.length ? stage.log[0][1] : null, 4), fixed(stage.log && stage.log.length ? stage.log[stage.log.length - 1][1] : null, 4)]), 1),
    curve ? [el("h3", {}, "Loss"), curve] : note("The results have no loss curves."),
    form.calibration && [el("h3", {}, "Calibration"), parts.calibration], form.by_length && [el("h3", {}, "By length"), parts.lengths],
    el("h3", {}, MANY ? "Settings" : "Command"), runs.map((one) => el("pre", {}, el("code", {}, `${one.folder}\n${one.command}`))));
  $("panel").showModal();
  close.focus();
  if (curve && window.Plotly) Plotly.newPlot(curve, logged.map((stage) => ({ x: stage.log.map((point) => point[0]), y: stage.log.map((point) => point[1]), mode: "lines", name: plain(name(stage)) })),
    { ...layout("step", "training loss"), showlegend: logged.length > 1 }, SETTINGS);
  if (form.calibration) calibration(form, parts.calibration);
  if (form.by_length) lengths(form, parts.lengths);
}

// ---- all of it

function draw() {
  const eligible = ranked(members().filter((form) => offered(form))), [best, next] = eligible;
  const line = frontier(eligible);
  fill("choice", choice(best, next, eligible.length));
  figure(line, best || null);
  table(best || null);
  heat(line, best || null);
  cost(line, best || null);
  const about = best || null;
  calibration(about, $("calibration"));
  lengths(about, $("lengths"));
  disagreements(about, $("disagreements"));
  waterfall(about, $("waterfall"));
}
function verdict() {
  const { sentences, loading: found } = group();
  fill("verdict", el("p", { class: "headline" }, sentences.join(" ")), found && (found.command || found.code) && el("pre", {}, el("code", {}, found.command || found.code)),
    found && found.note && note(found.note), group().older_rules > 0 && note(`${group().older_rules} of these runs were made under older rules.`));
}
function start(index) {
  const found = DATA.groups[index];
  Object.assign(state, { group: index, above: false, input: found.input, least: found.least, ms: null, mib: null, focus: null, rows: PAGE, heat: PAGE / 3 });
  cached.members = FORMS.filter((form) => form.group === index);
  cached.targets = [...new Set(cached.members.filter((form) => form.role !== "teacher").map((form) => form.target))];
  verdict();
  controls();
  draw();
}
function plotting() { // the library takes long to start, so it starts when the rest of the page is on the screen
  const script = document.createElement("script");
  script.textContent = $("plotly").textContent;
  document.head.append(script);
  const eligible = ranked(members().filter((form) => offered(form))), best = eligible[0] || null;
  figure(frontier(eligible), best);
  calibration(best, $("calibration"));
  document.documentElement.dataset.ready = "figure";
}

$("theme").addEventListener("click", () => { document.documentElement.dataset.theme = dark() ? "light" : "dark"; draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
$("panel").addEventListener("click", (event) => { if (event.target === $("panel")) $("panel").close(); });
let before = null; // what printing changes
window.addEventListener("beforeprint", () => {
  before = { theme: document.documentElement.dataset.theme, rows: state.rows };
  document.querySelectorAll("details").forEach((part) => { part.open = true; });
  document.documentElement.dataset.theme = "light";
  state.rows = Infinity;
  draw();
});
window.addEventListener("afterprint", () => {
  if (before.theme) document.documentElement.dataset.theme = before.theme; else delete document.documentElement.dataset.theme;
  state.rows = before.rows;
  draw();
});
start(0);
document.documentElement.dataset.ready = "tables";
requestAnimationFrame(() => setTimeout(plotting, 0));
