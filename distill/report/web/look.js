"use strict";
// Enlarges one head of each model. Its weights are read from its picture, whose opacity is their root.

const CELL = [7, 22], WIDTH = 660; // pixels: of a token in the enlarged map, and of the whole map
const root = document.documentElement;

function weightsOf(image) {
  const canvas = document.createElement("canvas"), side = image.naturalWidth;
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = context.getImageData(0, 0, side, side).data;
  return Array.from({ length: side }, (_, row) => Array.from({ length: side }, (_, column) => (pixels[4 * (row * side + column) + 3] / 255) ** 2));
}

function labels(name, texts) {
  const list = document.createElement("div");
  list.className = name;
  list.append(...texts.map((text) => Object.assign(document.createElement("span"), { textContent: text, title: text })));
  return list;
}

function follow(section) {
  const chips = [...section.querySelectorAll(".token")], texts = chips.map((chip) => chip.textContent);
  const maps = [...section.querySelectorAll(".map")], near = section.querySelector(".near"), said = section.querySelector(".said");
  const special = chips.map((chip) => chip.classList.contains("special"));
  let weights = null, title = "", side = null, from = Math.max(0, special.indexOf(false));

  function show(to = null) {
    const row = weights[from];
    const top = row.map((_, at) => at).sort((a, b) => row[b] - row[a]).slice(0, 3);
    const named = (at) => `${texts[at]} (token ${at}) ${row[at].toFixed(2)}`;
    said.textContent = `${title}: ${texts[from]} (token ${from}) attends to ${(to === null ? top : [to]).map(named).join(", ")}${to === null ? ", the most" : ""}.`;
    chips.forEach((chip, at) => {
      chip.style.setProperty("--w", Math.sqrt(row[at]).toFixed(3));
      chip.setAttribute("aria-pressed", at === from);
    });
    [...side.children].forEach((label, at) => label.classList.toggle("chosen", at === from));
  }

  async function enlarge(button) {
    const small = button.querySelector("img"), image = new Image();
    image.src = small.src;
    await image.decode();
    weights = weightsOf(image);
    title = button.title;
    maps.forEach((map) => map.setAttribute("aria-pressed", map === button));
    const grid = document.createElement("div");
    grid.className = "grid";
    grid.style.setProperty("--count", texts.length);
    grid.style.setProperty("--cell", `${Math.max(CELL[0], Math.min(CELL[1], Math.floor(WIDTH / texts.length)))}px`);
    side = labels("side", texts);
    grid.append(document.createElement("span"), labels("up", texts), side, image);
    image.alt = `${title}, the attention weights of all tokens`;
    image.addEventListener("pointermove", (event) => {
      const box = image.getBoundingClientRect(), edge = image.clientLeft, size = image.clientWidth / texts.length;
      const at = (place) => Math.max(0, Math.min(texts.length - 1, Math.floor((place - edge) / size)));
      from = at(event.clientY - box.top);
      show(at(event.clientX - box.left));
    });
    near.replaceChildren(grid);
    near.hidden = false;
    show();
  }

  maps.forEach((map) => map.addEventListener("click", () => enlarge(map)));
  chips.forEach((chip, at) => chip.addEventListener("click", () => {
    from = at;
    if (weights === null) enlarge(maps[0]); else show();
  }));
}

document.querySelectorAll(".model").forEach(follow);
document.getElementById("theme").addEventListener("click", () => {
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
});
