"use strict";
// Draws the page from the JSON in #data. Every text from the data goes through textContent or `plain`, never into HTML.

const DATA = JSON.parse(document.getElementById("data").textContent);
const VARIANTS = DATA.variants, RUNS = DATA.runs, MANY = DATA.runs.length > 1;
VARIANTS.forEach((variant, id) => { variant.id = id; });
const FEW = 60, PAGE = 60;              // points with intervals, rows of a table at first
const LIGHT = DATA.colours.light, DARK = DATA.colours.dark; // backend -> colour
const SHAPES = [["circle", "●", "○"], ["square", "■", "□"], ["diamond", "◆", "◇"], ["triangle-up", "▲", "△"],
  ["triangle-down", "▼", "▽"], ["pentagon", "⬟", "⬠"], ["hexagon", "⬢", "⬡"], ["star-square", "✦", "✧"]];
const FILL = { baseline: "-open", pruned: "-open", "self-trained": "-open-dot" }; // of the symbol of a role; others are filled
const state = { group: 0, above: false, input: null, least: 0, ms: null, mib: null, sort: ["fit", -1],
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
const inMs = (value) => fixed(value, value !== null && value !== undefined && value < 1 ? 3 : 1);
const share = (value) => (value === null || value === undefined ? "-" : value.toFixed(2 - Math.floor(Math.log10(Math.min(value, 1 - value))))); // 3 digits, near 1 of the distance from it
const note = (text) => el("p", { class: "meta" }, text);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;

function ends(value, digits) {
  if (!value || value[1] === null) return "";
  const both = value.slice(1, 3).map((end) => fixed(end, digits));
  return value[3] ? ` (seeds ${both.join(" to ")})` : ` [${both.join(", ")}]`;
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

// Python has ranked the variants, marked those that are offered, and written what tests show; here they are filtered.
const cached = { members: [], targets: [], // of the group that is shown
  placed: [], eligible: [], fitting: new Set(), best: null, line: [] }; // variants in the figure, those left to choose from, the first, the frontier

const group = () => DATA.groups[state.group];
const members = () => cached.members;
const kept = (variant) => (state.above ? variant.above : variant.raw);
const apart = (variant) => (state.above ? variant.developmentAbove : variant.development); // on the development rows
const judged = (variant) => apart(variant) || kept(variant); // choices are made by it
const speed = (variant) => variant.speedup[state.input] || null;
const offered = (variant) => variant.offered && (!variant.faster || speed(variant)[0] > 1); // else float32 is faster
const taken = (variant) => variant.ms[state.input] ?? null;
const label = (variant) => `${variant.name}, ${variant.scheme} ${variant.backend}`;
const brief = (input) => (/^\d+x\d+$/.test(input) ? input : (input || "").startsWith("single texts") ? "single texts" : "own lengths");
const where = (variant) => RUNS[variant.runs[0]].folder + (variant.runs.length > 1 ? ` and ${variant.runs.length - 1} more` : "");
const within = (value, most) => value !== null && value !== undefined && value <= most;
const CONDITIONS = [
  ["least", (variant, least) => judged(variant)[0] >= least, (least) => `retain at least ${fixed(least)}%${cached.placed.some(apart) ? " on the development rows" : ""}`],
  ["ms", (variant, most) => within(taken(variant), most), (most) => `take at most ${inMs(most)} ms`],
  ["mib", (variant, most) => within(variant.mib, most), (most) => `have at most ${fixed(most)} MiB`],
];
const asked = () => CONDITIONS.filter(([key]) => state[key] !== null);
function filter() {
  const order = group().ranked[state.above ? "above" : "raw"][state.input] || [];
  cached.placed = order.map((id) => VARIANTS[id]);
  cached.eligible = cached.placed.filter((variant) => offered(variant) && asked().every(([key, holds]) => holds(variant, state[key])));
  cached.fitting = new Set(cached.eligible);
  cached.best = cached.eligible[0] || null;
  cached.line = frontier(cached.eligible);
}
const fits = (variant) => cached.fitting.has(variant);
function frontier(ranked) { // those that no other variant beats in both speed and what is retained
  let best = -Infinity;
  return ranked.filter((variant) => (kept(variant)[0] > best ? ((best = kept(variant)[0]), true) : false)).reverse();
}
function knee(line) { // the point farthest from the chord between the ends of the frontier, both axes scaled to 0..1
  if (line.length < 3) return null;
  const [first, last] = [line[0], line[line.length - 1]];
  const x = (variant) => (speed(variant)[0] - speed(first)[0]) / (speed(last)[0] - speed(first)[0] || 1);
  const y = (variant) => (kept(variant)[0] - kept(last)[0]) / (kept(first)[0] - kept(last)[0] || 1);
  const height = (variant) => x(variant) + y(variant) - 1;
  const best = line.slice(1, -1).reduce((a, b) => (height(b) > height(a) ? b : a));
  return height(best) > 0 ? best : null;
}
const mark = (target) => SHAPES[Math.max(cached.targets.indexOf(target), 0) % SHAPES.length];
const shape = (variant) => (variant.role === "teacher" ? ["star", "★", "☆"] : mark(variant.target));

// ---- controls

function slider(key, title, values, most, digits) {
  const sorted = values.filter((value) => value !== null && value !== undefined && value > 0);
  if (!sorted.length) return el("div", { class: "control" }, el("span", {}, title), note("Not measured."));
  if (most) digits = Math.max(digits, 1 - Math.floor(Math.log10(Math.min(...sorted)))); // of a limit that may be far below 1
  const step = 10 ** -digits;
  const low = Math.floor(Math.min(...sorted) / step) * step, high = Math.ceil(Math.max(...sorted) / step) * step;
  const log = most && high / low > 4; // sizes and times span decades
  const place = (value) => (log ? 1000 * Math.log(value / low) / Math.log(high / low) : 1000 * (value - low) / (high - low || 1));
  const at = (position) => (log ? low * (high / low) ** (position / 1000) : low + (high - low) * position / 1000);
  const start = state[key] ?? (most ? high : 0);
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
  const set = (value) => { state[key] = (most ? value >= high : value <= 0) ? null : value; later(); };
  return el("div", { class: "control" }, el("span", {}, title), el("div", { class: "row" }, range, box));
}

function picker(id, title, options, chosen, change) {
  const select = el("select", { id, onchange: () => change(select.value) }, options.map(([value, text, off]) =>
    el("option", { value, selected: value === chosen, disabled: off }, text)));
  return el("div", { class: "control" }, el("label", { for: id }, title), select);
}

function controls() {
  const every = members(), noChance = !every.some((variant) => variant.above);
  const amounts = (pick) => cached.placed.map(pick);
  const parts = [];
  if (DATA.groups.length > 1) {
    const options = DATA.groups.map((one, index) => [String(index), one.title]);
    const which = picker("group", "Runs with the same tasks, teacher and machine", options, String(state.group), (value) => { start(Number(value)); $("group").focus(); });
    parts.push(which);
  }
  parts.push(slider("least", `At least retained, % ${state.above ? "above chance" : "of the score"}`, amounts((variant) => judged(variant)[0]), false, 1));
  parts.push(slider("ms", `At most milliseconds, ${brief(state.input)}`, amounts(taken), true, 1));
  parts.push(slider("mib", "At most MiB", amounts((variant) => variant.mib), true, 1));
  parts.push(picker("kind", "Retained is a share of", [["raw", "the teacher's score"],
    ["above", `what that score has above chance${noChance ? " (not measured in these runs)" : ""}`, noChance]],
  state.above ? "above" : "raw", (value) => { state.above = value === "above"; draw(); controls(); $("kind").focus(); }));
  parts.push(picker("input", "Speed is measured with", group().inputs.map((name) => [name, /^\d+x\d+$/.test(name) ? `${name} (batch x length)` : name]),
    state.input, (value) => { state.input = value; state.ms = null; draw(); controls(); $("input").focus(); }));
  const [which, sliders, pickers] = [parts.slice(0, -5), parts.slice(-5, -2), parts.slice(-2)];
  fill("controls", which, el("div", { class: "three" }, sliders), el("div", { class: "two" }, pickers));
}

let pending = 0;
function later() {
  cancelAnimationFrame(pending);
  pending = requestAnimationFrame(draw);
}

// ---- the choice

function loading(variant) {
  const { command, code, path, note: remark } = variant.loading;
  const parts = [command && el("pre", {}, el("code", {}, command)), code && el("pre", {}, el("code", {}, code))];
  if (!command && !code && path) parts.push(note(`Its files: ${path}`));
  return [...parts, remark && note(remark)];
}
function open(variant, text) {
  return el("button", { type: "button", class: "name", onclick: () => panel(variant) }, text || label(variant));
}
function numbers(variant) {
  const parts = [`retains ${shown(kept(variant), 1, "%")}`, `${shown(speed(variant), 2, "x")} as fast`];
  if (taken(variant) !== null) parts.push(`${inMs(taken(variant))} ms`);
  if (variant.mib !== null) parts.push(`${fixed(variant.mib)} MiB`);
  return parts.join(", ");
}
function choice() {
  const { best, eligible, placed } = cached, next = eligible[1], conditions = asked();
  if (!best) {
    const all = placed.filter(offered);
    const counts = conditions.map(([key, holds, text]) => `; that ${text(state[key])}: ${all.filter((variant) => holds(variant, state[key])).length}`);
    return [el("p", { class: "what" }, "No variant meets all conditions."),
      el("p", {}, `Students and teachers with a speed${state.input ? ` (${state.input})` : ""} and a retained share: ${all.length}${counts.join("")}.`)];
  }
  const student = best.role === "teacher" && eligible.find((variant) => variant.role === "student");
  return [
    el("p", { class: "what" }, "Fastest: ", open(best), ` ${numbers(best)}.`),
    next ? el("p", {}, "Next: ", open(next), ` ${numbers(next)}; ${best.tests[next.id] || (best.runs.length > 1 ? "tests of single runs are in their own reports" : "no test compares their scores")}.`) : el("p", {}, "No other variant meets the conditions."),
    student && student !== next && el("p", {}, "Fastest student: ", open(student), ` ${numbers(student)}.`),
    best.role === "teacher" && !student && members().some((variant) => variant.role === "student") && el("p", {}, "No student meets the conditions."),
    ...loading(best),
    el("p", { class: "meta" }, `${eligible.length} of ${placed.length} scored variants ${conditions.map(([key, , text]) => text(state[key])).join(" and ") || "are students or teachers"}. The choice is made `
      + (state.least === null ? "without any score." : apart(best) ? "by the scores on the development rows; those that are shown played no part in it."
        : "with the same scores that are shown, so expect the chosen variant to retain slightly less on new rows.")),
  ];
}

// ---- the figure

function around(value, index) { return value[1] === null ? 0 : Math.max(index === 1 ? value[0] - value[1] : value[2] - value[0], 0); }
function bars(variants, pick, visible) {
  return !visible || !variants.length ? { visible: false } : { type: "data", symmetric: false, thickness: 1, width: 2, array: variants.map((variant) => around(pick(variant), 2)),
    arrayminus: variants.map((variant) => around(pick(variant), 1)) };
}
function layout(x, y) {
  const axis = { gridcolor: style("--line"), zeroline: false, linecolor: style("--line"), automargin: true, title: { standoff: 8 } };
  return { paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: style("--ink"), size: 13 }, showlegend: false, colorway: Object.values(dark() ? DARK : LIGHT),
    margin: { l: 55, r: 15, t: 18, b: 45 }, hovermode: "closest", xaxis: { ...axis, title: { ...axis.title, text: x } },
    yaxis: { ...axis, title: { ...axis.title, text: y } }, hoverlabel: { bgcolor: style("--panel"), font: { color: style("--ink") }, align: "left" },
    shapes: [], annotations: [], dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom" };
}
const SETTINGS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage"] };

function hover(variant) {
  const lines = [`<b>${plain(label(variant))}</b>`, MANY ? plain(where(variant)) : "", `retained of the score ${shown(variant.raw, 1, "%")}`,
    variant.above ? `retained above chance ${shown(variant.above, 1, "%")}` : "", `speedup ${shown(speed(variant), 2, "x")} with ${plain(state.input)}`,
    `${inMs(taken(variant))} ms, ${fixed(variant.mib)} MiB`, variant.runs.length > 1 ? `mean of ${variant.runs.length} seeds` : "", "click for more"];
  return lines.filter(Boolean).join("<br>");
}
function figure() {
  const { line, best } = cached, every = [...cached.placed].sort((a, b) => a.id - b.id); // in one order, whatever is chosen
  if (!every.length) {
    if (window.Plotly) Plotly.purge("figure");
    figure.ready = false; // purging has removed what listens to clicks
    fill("figure", note("No variant has both a speed and a retained share with this input."));
    fill("legend");
    $("frontier").lastElementChild.replaceChildren();
    return;
  }
  const on = new Set(line), few = every.length <= FEW;
  const traces = [...new Set(every.map((variant) => variant.backend))].flatMap((backend) => [true, false].map((front) => {
    const variants = every.filter((variant) => variant.backend === backend && on.has(variant) === front);
    const ink = colour(backend);
    return { x: variants.map((variant) => speed(variant)[0]), y: variants.map((variant) => kept(variant)[0]), mode: "markers", type: "scatter", customdata: variants.map((variant) => variant.id),
      text: variants.map(hover), hovertemplate: "%{text}<extra></extra>", opacity: front ? 1 : 0.4,
      error_x: { ...bars(variants, speed, few || front), color: ink }, error_y: { ...bars(variants, kept, few || front), color: ink },
      marker: { color: ink, size: variants.map((variant) => (variant === best ? 17 : 11)), line: { width: variants.map((variant) => (variant === best ? 3 : 1)), color: variants.map((variant) => (variant === best ? style("--ink") : ink)) },
        symbol: variants.map((variant) => shape(variant)[0] + (FILL[variant.role] || "")) } };
  }));
  traces.unshift({ x: line.map((variant) => speed(variant)[0]), y: line.map((variant) => kept(variant)[0]), mode: "lines", type: "scatter", hoverinfo: "skip", line: { color: style("--soft"), width: 1.5 } });
  const chance = state.above ? 0 : group().chance;
  const narrow = $("figure").clientWidth < 600, input = plain(brief(state.input));
  const plan = layout(narrow ? `speedup, ${input}` : `speedup over ${group().reference}, ${input}`, `retained %${state.above ? ", above chance" : ""}`);
  const levels = every.map((variant) => kept(variant)[0]);
  const reach = line.flatMap((variant) => [kept(variant)[1], kept(variant)[2]]).filter((end) => end !== null);
  let low = Math.min(...levels, ...reach, 100), high = Math.max(...levels, ...reach, 100);
  const room = Math.max((high - low) * 0.12, 0.5);
  [low, high] = [low - room, high + room];
  const floor = Math.max(low, Math.min(...line.map((variant) => kept(variant)[0]), ...reach, state.least) - 12); // far below, nobody chooses
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
  if (state.least !== null && state.least > low) level(state.least, "", "longdash");
  const bend = knee(line);
  for (const [variant, text, side] of [[best, best && best === bend ? "choice and knee" : "choice", 1], [bend === best ? null : bend, "knee", -1]]) {
    if (variant) plan.annotations.push({ x: speed(variant)[0], y: kept(variant)[0], text, ax: 26 * side, ay: -34 * side, arrowcolor: style("--ink"), arrowwidth: 1, arrowhead: 0, standoff: 8, bgcolor: style("--ground") });
  }
  legend(every, few, chance, under);
  asText(bend);
  if (!window.Plotly) return;
  if (!$("figure").data) $("figure").replaceChildren();
  Plotly.react("figure", traces, plan, SETTINGS);
  if (!figure.ready) {
    $("figure").on("plotly_click", (event) => { const id = event.points[0].customdata; if (id !== undefined) panel(VARIANTS[id]); });
    figure.ready = true;
  }
}
function asText(bend) {
  const { line, best } = cached;
  const head = ["Variant", "Retained %", "Speedup", "ms", "MiB", ""];
  $("frontier").lastElementChild.replaceChildren(grid(head, line.map((variant) => [open(variant), shown(kept(variant), 1), shown(speed(variant), 2, "x"), inMs(taken(variant)), fixed(variant.mib),
    [variant === best && "choice", variant === bend && "knee"].filter(Boolean).join(", ")]), 1));
}
function legend(every, few, chance, under) {
  const item = (glyph, text, ink) => el("span", {}, el("b", { style: ink ? { color: ink } : {}, "aria-hidden": "true" }, glyph), text);
  const roles = new Set(every.map((variant) => variant.role));
  const parts = [...new Set(every.map((variant) => variant.backend))].map((backend) => item("●", backend, colour(backend)));
  const named = new Set(every.filter((variant) => variant.role !== "teacher").map((variant) => variant.target));
  parts.push(...cached.targets.filter((target) => named.has(target)).map((target) => item(mark(target)[1], target || "no target")));
  if (roles.has("teacher")) parts.push(item("★", "teacher"));
  if (roles.has("baseline")) parts.push(item("○", "hollow: baseline, trained without a teacher"));
  if (roles.has("self-trained")) parts.push(item("⊙", "hollow with a dot: self-trained, with the baseline as its teacher"));
  parts.push(item("—", "frontier of the variants that meet the sliders; others are dimmed"));
  if (every.some((variant) => variant.runs.length > 1)) parts.push(item("", "bars: 95% intervals, over rows and seeds; of speedups of several seeds, the slowest and the fastest"));
  else parts.push(item("", "bars: 95% intervals"));
  if (!few) parts.push(item("", `intervals are drawn on the frontier only, as there are ${every.length} points`));
  if (under) parts.push(item("", `below the axis: ${under}; double-click the figure to see all`));
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
  ["name", "Variant", (variant) => label(variant), (variant) => open(variant), true],
  ["run", "Run", (variant) => where(variant), null, true],
  ["role", "Role", (variant) => variant.role, null, true],
  ["target", "Target", (variant) => variant.target || "", null, true],
  ["raw", "Retained %", (variant) => variant.raw && variant.raw[0], (variant) => (variant.failed && !variant.raw ? "failed" : shown(variant.raw, 1))],
  ["above", "Above chance %", (variant) => variant.above && variant.above[0], (variant) => shown(variant.above, 1)],
  ["speedup", "Speedup", (variant) => speed(variant) && speed(variant)[0], (variant) => shown(speed(variant), 2, "x")],
  ["ms", "ms", (variant) => taken(variant), (variant) => inMs(taken(variant))],
  ["p95", "p95 ms, single texts", (variant) => variant.requests && variant.requests.p95, (variant) => inMs(variant.requests && variant.requests.p95)],
  ["mib", "MiB", (variant) => variant.mib, (variant) => fixed(variant.mib)],
  ["parameters", "Parameters, M", (variant) => variant.parameters && variant.parameters / 1e6, (variant) => fixed(variant.parameters && variant.parameters / 1e6, 2)],
  ["seeds", "Seeds", (variant) => variant.runs.length, (variant) => variant.runs.flatMap((index) => RUNS[index].seeds).join(", ")],
];
const classOf = (variant) => (variant === cached.best ? "chosen" : fits(variant) ? variant.role : `${variant.role} unmet`);
function table() {
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (variant) => [label(variant), variant.role, variant.target, variant.settings, ...variant.runs.map((index) => RUNS[index].folder)].join(" ").toLowerCase();
  const variants = members().filter((variant) => (!state.meeting || fits(variant)) && words.every((word) => text(variant).includes(word)));
  const columns = COLUMNS.filter(([key, , value]) => key === "name" || (key === "run" || key === "seeds" ? MANY : members().some((variant) => value(variant) !== null && value(variant) !== undefined && value(variant) !== "")));
  const fit = (variant) => (fits(variant) ? 1e6 : 0) + (speed(variant) ? speed(variant)[0] : 0); // at first, the variants to choose from
  const [key, way] = state.sort, value = key === "fit" ? fit : (columns.find((column) => column[0] === key) || columns[0])[2];
  const missing = (variant) => value(variant) === null || value(variant) === undefined;
  variants.sort((a, b) => missing(a) - missing(b) || (missing(a) ? 0 : typeof value(a) === "string" ? way * value(a).localeCompare(value(b)) : way * (value(a) - value(b))));
  const texts = columns.filter((column) => column[4]).length;
  const head = columns.map(([name, title, , , isText]) => el("button", { type: "button", class: isText ? null : "n", onclick: () => {
    state.sort = [name, state.sort[0] === name ? -state.sort[1] : isText ? 1 : -1]; table();
  } }, title + (name === key ? (way > 0 ? " ▲" : " ▼") : "")));
  const part = variants.slice(0, state.rows);
  const made = grid(head, part.map((variant) => columns.map(([, , pick, show]) => (show || pick)(variant))), texts, part.map(classOf));
  made.querySelectorAll("th").forEach((cell, index) => { if (columns[index][0] === key) cell.setAttribute("aria-sort", way > 0 ? "ascending" : "descending"); });
  const rest = variants.length - part.length;
  const more = rest > 0 && el("p", {}, el("button", { type: "button", onclick: () => { state.rows += 10 * PAGE; table(); } }, `Show ${Math.min(rest, 10 * PAGE)} more of ${rest}`));
  const failed = variants.filter((variant) => variant.failed).map((variant) => note(`${label(variant)} failed${variant.raw ? " with some seeds" : ""}: ${variant.failed}`));
  if (!$("rows")) {
    const search = el("input", { type: "search", id: "filter", placeholder: "int8 openvino 2x", oninput: () => { state.filter = search.value; state.rows = PAGE; table(); } });
    const only = el("input", { type: "checkbox", id: "meeting", onchange: () => { state.meeting = only.checked; table(); } });
    fill("table", el("div", { class: "filters" }, el("label", {}, "Filter by words ", search), el("label", {}, only, " only variants that meet the sliders")), el("div", { id: "rows" }));
  }
  fill("rows", made, more, ...failed, note(`Click a name for its stages, scores and files. Faint rows do not meet the sliders or are not offered. Retained %: the share of the teacher's macro score${group().without}.`));
}

const score = (variant, task) => (variant.scores[task] ? mean(Object.values(variant.scores[task])) : null);
function heat() {
  const tasks = group().tasks, teacher = group().teacher, { best, line, eligible, placed } = cached;
  const variants = [...new Set([...(best ? [best] : []), ...line, ...eligible, ...placed, ...members()])].filter((variant) => Object.keys(variant.scores).length);
  if (!tasks.length || !Object.keys(teacher).length) return fill("heat", note("The teacher was not scored, so scores have nothing to be compared with."));
  const tested = variants.some((variant) => Object.keys(variant.ties).length);
  const tint = (difference) => `rgba(${style(difference < 0 ? "--down" : "--up")}, ${Math.min(Math.abs(difference) / 12, 1) * 0.55})`;
  const rows = variants.slice(0, state.heat).map((variant) => [open(variant, MANY ? `${label(variant)}, ${where(variant)}` : label(variant)), ...tasks.map((task) => {
    const value = score(variant, task);
    if (value === null || teacher[task] === undefined) return "-";
    const constant = (variant.near_constant || []).includes(task) ? " (near-constant)" : "";
    return el("span", { "data-tint": tint(value - teacher[task]) }, `${fixed(value)}${variant.ties[task] ? " =" : ""}${constant}`);
  })]);
  const head = ["Variant", ...tasks.map((task) => `${task} (teacher ${fixed(teacher[task])}${group().near_chance.includes(task) ? ", near chance" : ""})`)];
  const made = grid(head, rows, 1, variants.map((variant) => (variant === best ? "chosen" : null)));
  made.querySelectorAll("[data-tint]").forEach((span) => { span.parentElement.style.background = span.dataset.tint; });
  const ties = tested ? "= marks a score that a paired test does not distinguish from the teacher's. " : "No paired tests are in these results, so ties with the teacher are not marked. ";
  const least = group().detectable ? `The smallest difference that each split can show, in points: ${Object.entries(group().detectable).map(([task, value]) => `${task} ${fixed(value)}`).join(", ")}.` : "";
  const rest = variants.length - state.heat;
  const whose = new Set(members().flatMap((variant) => variant.runs)).size > 1 ? " The teacher's scores are means over the runs." : "";
  fill("heat", note(`Mean of each task's metrics, in percent. Blue is above the teacher, orange below; the tint is full at 12 points.${whose}`), made,
    rest > 0 && el("p", {}, el("button", { type: "button", onclick: () => { state.heat += 5 * PAGE; heat(); } }, `Show more of ${rest}`)), note(ties + least));
}

// ---- sections about one variant: the one that was clicked, else the choice

function calibration(variant, place) {
  const every = variant ? Object.entries(variant.calibration || {}) : [];
  if (!every.length) return place.replaceChildren(note(variant ? `Calibration by task is not in the results of ${label(variant)}.` : "No variant is chosen."));
  const plot = el("div", { class: "plot small", role: "img", "aria-label": "Reliability: accuracy against confidence; errors are in the table" });
  const traces = every.map(([task, row]) => ({ x: row.bins.map((bin) => bin[0]), y: row.bins.map((bin) => bin[1]), customdata: row.bins.map((bin) => bin[2]), name: plain(task), mode: "lines+markers", type: "scatter",
    hovertemplate: `${plain(task)}: %{customdata} rows with confidence %{x:.2f} have accuracy %{y:.2f}<extra></extra>` }));
  traces.unshift({ x: [0, 1], y: [0, 1], mode: "lines", line: { dash: "dot", color: style("--soft") }, name: "calibrated", hoverinfo: "skip" });
  place.replaceChildren(note(`${label(variant)}. ECE is the expected calibration error: the mean distance of accuracy from confidence.`),
    plot, grid(["Task", "ECE", "Temperature", "ECE with it"], every.map(([task, row]) => [task, fixed(row.ece, 3), fixed(row.temperature, 2), fixed(row.ece_scaled, 3)]), 1));
  if (window.Plotly) Plotly.newPlot(plot, traces, { ...layout("confidence", "accuracy"), showlegend: true, legend: { font: { size: 11 } } }, SETTINGS);
}
function lengths(variant, place) {
  const every = variant ? Object.entries(variant.by_length || {}) : [];
  if (!every.length) return place.replaceChildren(note(variant ? `Scores by length are not in the results of ${label(variant)}.` : "No variant is chosen."));
  const rows = every.flatMap(([task, parts]) => parts.map((part) => [task, `${part.from} to ${part.to}`, fixed(part.rows, 0), Object.entries(part.scores).map(([metric, value]) => `${metric} ${fixed(value)}`).join(", ")]));
  place.replaceChildren(note(`${label(variant)}.`), grid(["Task", "Length", "Rows", "Scores"], rows, 2));
}
function disagreements(variant, place) {
  const found = variant ? variant.runs.map((index) => RUNS[index]).filter((run) => run.disagreements.length) : [];
  if (!found.length) return place.replaceChildren(note(variant ? "No rows on which student and teacher differ are stored beside these results." : "No variant is chosen."));
  const students = new Set(found.flatMap((run) => run.disagreements.map(label))), several = students.size > 1; // one of each target
  const rows = found.flatMap((run) => run.disagreements.map((row) => [...(several ? [label(row)] : []), row.task, row.split, String(row.row), Array.isArray(row.text) ? row.text.join(" | ") : typeof row.text === "object" && row.text ? Object.values(row.text).join(" | ") : String(row.text ?? ""), String(row.teacher), String(row.student), String(row.label)]));
  const counts = found.flatMap((run) => Object.entries(run.disagreeing)).map(([task, count]) => `${task} ${count}`).join(", ");
  const part = (count) => {
    const made = grid([...(several ? ["Model"] : []), "Task", "Split", "Row", "Text", "Teacher", "Student", "Label"], rows.slice(0, count), several ? 8 : 7);
    made.querySelectorAll(`tbody td:nth-child(${several ? 5 : 4})`).forEach((cell) => cell.classList.add("long"));
    return made;
  };
  const all = el("button", { type: "button", onclick: () => { place.children[1].replaceWith(part(rows.length)); all.remove(); } }, `Show all ${rows.length}`);
  place.replaceChildren(note(`Rows on which student and teacher differ, stored in ${found.map((run) => `${run.folder}/disagreements.json`).join(", ")}: ${counts}.`), part(20), ...(rows.length > 20 ? [all] : []));
}
function waterfall(variant, place) {
  const run = variant && RUNS[variant.runs[0]];
  if (!run || !run.waterfall.length) return place.replaceChildren(note(!run ? "No variant is chosen." : "The results do not take the speedup apart into depth, width, int8 and runtime."));
  const most = Math.max(...run.waterfall.map((row) => row.speedup)), several = new Set(run.waterfall.map((row) => row.target)).size > 1;
  const rows = run.waterfall.map((row) => [...(several ? [row.target || "no target"] : []), row.step, el("span", { class: "bar", style: { width: `${12 * row.speedup / most}rem` } }), fixed(row.speedup, 2) + "x", row.retained === null ? "-" : fixed(row.retained)]);
  place.replaceChildren(note(`${run.folder}. Each row adds its step to those above it.`), grid([...(several ? ["Target"] : []), "Step", "", "Speedup", "Retained %"], rows, several ? 3 : 2));
}
const COSTS = [["throughput_per_second", "Texts/s", 0], ["cold_start_ms", "Cold start, ms", 0], ["memory_mib", "Memory while serving, MiB", 0], ["energy_j", "Energy of a request, J", 3], ["cost_per_million", "Price of a million inferences", 2]];
function cost() {
  const { best, line } = cached, variants = [...new Set([...(best ? [best] : []), ...line])];
  const columns = COSTS.filter(([key]) => variants.some((variant) => variant[key] !== null));
  const requests = variants.some((variant) => variant.requests);
  if (!variants.length || !(columns.length || requests)) return fill("cost", note(!variants.length ? "No variant is chosen." : "Throughput, memory, energy and price were not measured in these runs."));
  const head = ["Variant on the frontier", ...columns.map((column) => column[1]), ...(requests ? ["p50 ms", "p95 ms", "p99 ms", "Requests"] : []), "MiB on disk"];
  const rows = variants.map((variant) => [open(variant), ...columns.map(([key, , digits]) => fixed(variant[key], digits)),
    ...(requests ? ["p50", "p95", "p99"].map((key) => inMs(variant.requests && variant.requests[key])).concat(fixed(variant.requests && variant.requests.count, 0)) : []), fixed(variant.mib)]);
  const lacking = [...new Set(variants.filter((variant) => variant.energy_j === null && variant.energy_missing).map((variant) => variant.energy_missing))];
  const price = columns.some(([key]) => key === "cost_per_million") ? "" : "There is no price, as report.hourly_rate was not set. ";
  fill("cost", grid(head, rows, 1, variants.map((variant) => (variant === best ? "chosen" : null))), note(price + (lacking.length ? `Energy is missing: ${lacking.join("; ")}.` : "")));
}

// ---- the panel of a variant

function panel(variant) {
  const runs = variant.runs.map((index) => RUNS[index]), run = runs[0];
  const row = (name, value) => [name, value];
  const facts = [row("Role", variant.role), row("Retained of the score", shown(variant.raw, 1, "%")), row("Retained above chance", variant.above ? shown(variant.above, 1, "%") : "not measured"),
    row("Parameters", variant.parameters === null ? "-" : `${fixed(variant.parameters / 1e6, 2)} M`), row("Size", `${fixed(variant.mib)} MiB`)];
  if (variant.near_constant) facts.push(row("Nearly constant on", variant.near_constant.join(", ")));
  if (variant.failed) facts.push(row("Failed", variant.failed));
  const teachers = members().filter((other) => other.role === "teacher" && Object.keys(other.scores).length && other.runs.some((index) => variant.runs.includes(index)));
  const reference = teachers.find((other) => !other.raw) || teachers[0]; // of the same run, and not one of its other forms
  const speeds = [...new Set([...Object.keys(variant.speedup), ...Object.keys(variant.ms)])].map((name) => [name, shown(variant.speedup[name], 2, "x"), fixed(variant.ms[name] ?? null, 2)]);
  speeds.push(...Object.entries(variant.from_text || {}).map(([name, found]) => [`${name}, from text (tokenizer ${fixed(100 * found.tokenizer, 0)}%)`, `${fixed(found.speedup.median, 2)}x`, fixed(found.median, 2)]));
  if (variant.over) facts.push(row("Speed over your model in its fastest form that keeps its score", variant.over));
  const between = (ends, digits = 1) => (ends ? ` [${fixed(ends[0], digits)}, ${fixed(ends[1], digits)}]` : "");
  const interval = (task, metric) => between(variant.score_ci95 && variant.score_ci95[task] && variant.score_ci95[task][metric]);
  const scores = Object.entries(variant.scores).flatMap(([task, metrics]) => Object.entries(metrics).map(([metric, value]) => [task, metric, fixed(value) + interval(task, metric), fixed(reference ? (reference.scores[task] || {})[metric] : null)]));
  const recall = Object.entries(variant.recall || {}).flatMap(([task, labels]) => Object.entries(labels).map(([name, value]) => [task, name, fixed(value)]));
  scores.push(...Object.entries(variant.beside || {}).flatMap(([task, metrics]) => Object.entries(metrics).map(([metric, value]) => [task, `${metric}, beside the score`, fixed(value), fixed(reference ? ((reference.beside || {})[task] || {})[metric] : null)])));
  scores.push(...Object.entries(variant.teachers_index || {}).flatMap(([task, metrics]) => Object.entries(metrics).map(([metric, value]) => [task, `${metric}, on the teacher's documents`, fixed(value), fixed(reference ? (reference.scores[task] || {})[metric] : null)])));
  const detection = Object.entries(variant.detection || {}).flatMap(([task, labels]) => Object.entries(labels).map(([name, found]) => [task, name, fixed(found.roc_auc) + between(found.roc_auc_ci95), fixed(found.average_precision), share(found.threshold), fixed(found.chosen_on, 0), fixed(found.recall) + between(found.recall_ci95), fixed(found.false_positives, 2) + between(found.false_positives_ci95, 2)]));
  const spans = Object.entries(variant.entities || {}).flatMap(([task, types]) => Object.entries(types).map(([name, found]) => [task, name, fixed(found.precision), fixed(found.recall), fixed(found.f1), ...[found.true, found.exact, found.overlapping, found.mistyped].map((count) => fixed(count, 0))]));
  const forms = Object.entries(variant.vectors || {}).flatMap(([task, every]) => Object.entries(every).flatMap(([form, found]) => Object.entries(found.scores).map(([metric, value]) => [task, metric, form, fixed(found.bytes, 0), fixed(value)])));
  const stages = run.stages.filter((stage) => stage.target === null || stage.target === variant.target);
  const logged = stages.filter((stage) => stage.log && stage.log.length > 1);
  const name = (stage) => stage.name + (stage.target ? ` ${stage.target}` : "");
  const curve = logged.length && el("div", { class: "plot small", role: "img", "aria-label": "Training loss; first and last values are in the table of stages" });
  const parts = { calibration: el("div"), lengths: el("div"), waterfall: el("div") };
  const close = el("button", { type: "button", class: "quiet", onclick: () => $("panel").close() }, "Close");
  fill("panel", el("header", {}, el("h2", { id: "panel-title" }, label(variant)), close),
    el("h3", {}, "Load it"), ...loading(variant), grid(["Fact", "Value"], facts, 2),
    speeds.length && [el("h3", {}, "Speed"), grid(["Input", "Speedup", "ms"], speeds, 1)],
    scores.length && [el("h3", {}, "Scores, in percent"), grid(["Task", "Metric", "Score", "Teacher"], scores, 2)],
    recall.length && [el("h3", {}, "Recall of each label, in percent"), grid(["Task", "Label", "Recall"], recall, 2)],
    detection.length && [el("h3", {}, "Detection of labels, in percent"), grid(["Task", "Label", "ROC AUC", "Average precision", "Threshold", "Chosen on", "Recall", "False positives"], detection, 2)],
    spans.length && [el("h3", {}, "Spans by type"), grid(["Task", "Type", "Precision", "Recall", "F1", "Spans", "Exact", "Overlapping", "Mistyped"], spans, 2)],
    forms.length && [el("h3", {}, "Smaller vectors, in percent"), grid(["Task", "Metric", "Vectors", "Bytes", "Score"], forms, 3)],
    el("h3", {}, "Stages"), grid(["Stage", "Seconds", "Tokens/s", "First loss", "Last loss"], stages.map((stage) => [name(stage), fixed(stage.seconds, 0), fixed(stage.tokens_per_second, 0),
      fixed(stage.log && stage.log.length ? stage.log[0][1] : null, 4), fixed(stage.log && stage.log.length ? stage.log[stage.log.length - 1][1] : null, 4)]), 1),
    curve ? [el("h3", {}, "Loss"), curve] : note("The results have no loss curves."),
    variant.calibration && [el("h3", {}, "Calibration"), parts.calibration], variant.by_length && [el("h3", {}, "By length"), parts.lengths],
    el("h3", {}, MANY ? "Settings" : "Command"), runs.map((one) => el("pre", {}, el("code", {}, `${one.folder}\n${one.command}`))));
  $("panel").showModal();
  close.focus();
  if (curve && window.Plotly) Plotly.newPlot(curve, logged.map((stage) => ({ x: stage.log.map((point) => point[0]), y: stage.log.map((point) => point[1]), mode: "lines", name: plain(name(stage)) })),
    { ...layout("step", "training loss"), showlegend: logged.length > 1 }, SETTINGS);
  if (variant.calibration) calibration(variant, parts.calibration);
  if (variant.by_length) lengths(variant, parts.lengths);
}

// ---- all of it

function draw() {
  filter();
  fill("choice", choice());
  figure();
  table();
  heat();
  cost();
  calibration(cached.best, $("calibration"));
  lengths(cached.best, $("lengths"));
  disagreements(cached.best, $("disagreements"));
  waterfall(cached.best, $("waterfall"));
}
function start(index) {
  const found = DATA.groups[index];
  Object.assign(state, { group: index, above: false, input: found.input, least: found.least || null, ms: null, mib: null, rows: PAGE, heat: PAGE / 3 });
  cached.members = VARIANTS.filter((variant) => variant.group === index);
  cached.targets = [...new Set(cached.members.filter((variant) => variant.role !== "teacher").map((variant) => variant.target))];
  [...$("verdict").children].forEach((part, number) => { part.hidden = number !== index; });
  draw();
  controls();
}
function plotting() { // the library takes long to start, so it starts when the rest of the page is on the screen
  const script = document.createElement("script");
  script.textContent = $("plotly").textContent;
  document.head.append(script);
  figure();
  calibration(cached.best, $("calibration"));
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
