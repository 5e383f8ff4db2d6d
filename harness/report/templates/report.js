"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const filter = document.getElementById("filter");
const found = document.getElementById("found");
const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
function table(names, rows, attributes = {}, sortable = false) {
  const header = (name) => (sortable ? element("th", { scope: "col", "aria-sort": "none" }, element("button", { type: "button" }, name)) : element("th", { scope: "col" }, name));
  const head = element("thead", {}, element("tr", {}, ...names.map(header)));
  return element("table", attributes, head, element("tbody", {}, ...rows));
}
const row = (cells, attributes = {}) => element("tr", attributes, ...cells.map((cell) => (cell instanceof Element && /^T[DH]$/.test(cell.tagName) ? cell : element("td", {}, cell))));

// Filter: rows whose text has all words. A figure's title counts for each of its rows. Up to FEW
// figures with rows that fit are opened, and closed again when the filter is cleared.
const FEW = 6;
let opened = [];
function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
  const titleOf = (figure) => figure?.dataset.title ?? "";
  let shown = 0;
  for (const entry of all("tr.entry")) {
    entry.hidden = words.length > 0 && !fits(`${entry.textContent} ${titleOf(entry.closest("details.figure"))}`);
    if (entry.nextElementSibling?.matches(".detail")) entry.nextElementSibling.hidden = entry.hidden;
    shown += entry.hidden ? 0 : 1;
  }
  for (const figure of opened) figure.open = false;
  opened = [];
  const kept = [];
  for (const figure of all("details.figure")) {
    const has = all("tr.entry", figure).some((entry) => !entry.hidden);
    figure.hidden = words.length > 0 && !has && !fits(titleOf(figure));
    if (!figure.hidden && !figure.open) kept.push(figure);
    const chip = document.querySelector(`.chip[href="#${CSS.escape(figure.id)}"]`);
    if (chip) chip.parentElement.hidden = figure.hidden;
  }
  for (const paper of all("section.paper")) {
    paper.hidden = words.length > 0 && all("details.figure", paper).every((figure) => figure.hidden);
    document.querySelector(`.matrix a[href="#${CSS.escape(paper.id)}"]`).closest("tr").hidden = paper.hidden;
  }
  if (words.length && kept.length <= FEW) {
    for (const figure of kept) figure.open = true;
    opened = kept;
  }
  found.textContent = words.length ? `${shown} rows match` : "";
}
filter.addEventListener("input", applyFilter);

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape") {
    filter.value = "";
    applyFilter();
  }
});

// Sort: by number where most cells begin with one, else as text.
const valueOf = (entry, column) => entry.cells[column].dataset.value ?? entry.cells[column].textContent.trim();
function sortBy(header) {
  const sorted = header.closest("table");
  const column = header.cellIndex;
  const direction = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
  all("tr.entry", sorted).forEach(closeClaim);
  const rows = [...sorted.tBodies[0].rows];
  const numbers = rows.map((entry) => parseFloat(valueOf(entry, column).replace(/[,[]/g, "")));
  const numeric = numbers.filter((value) => !Number.isNaN(value)).length > rows.length / 2;
  const order = rows.map((entry, place) => [entry, numeric ? numbers[place] : valueOf(entry, column)]);
  order.sort(([, one], [, other]) => {
    if (!numeric) return direction * one.localeCompare(other);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);
    return direction * (one - other);
  });
  sorted.tBodies[0].append(...order.map(([entry]) => entry));
  for (const other of sorted.tHead.rows[0].cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", direction === 1 ? "ascending" : "descending");
}
document.addEventListener("click", (event) => {
  const header = event.target.closest("thead th[aria-sort]");
  if (header) sortBy(header);
  const chosen = event.target.closest("button.run");
  if (chosen) showRun(data.runs[Number(chosen.dataset.run)]);
});

// Light and dark: as the system has it until the button is pressed.
const theme = document.getElementById("theme");
const isDark = () => (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const nameTheme = () => (theme.textContent = isDark() ? "Light colours" : "Dark colours");
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
nameTheme();

// Figures: all of them, the one that the address names, and all on paper.
const open = document.getElementById("open");
open.addEventListener("click", () => {
  const figures = all("details.figure");
  const some = figures.some((figure) => !figure.open);
  for (const figure of figures) figure.open = some;
  opened = [];
  open.textContent = some ? "Close all figures" : "Open all figures";
});
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") {
    target.open = true;
    target.scrollIntoView();
  }
}
addEventListener("hashchange", openTarget);
openTarget();
let forPaper = [];
addEventListener("beforeprint", () => {
  forPaper = all("details.figure:not([open])");
  for (const figure of forPaper) figure.open = true;
});
addEventListener("afterprint", () => {
  for (const figure of forPaper) figure.open = false;
});

// A claim's quotation and its other settings, in a row below it.
function toggleClaim(button) {
  const entry = button.closest("tr");
  if (button.getAttribute("aria-expanded") === "true") return closeClaim(entry);
  button.setAttribute("aria-expanded", "true");
  const { quote, settings } = data.claims[button.dataset.paper][button.dataset.claim];
  const cell = element("td", { colspan: entry.cells.length }, element("p", {}, quote));
  const rows = settings.map(([name, ours, interval, word, reason]) => row([name, ours, interval || "-", element("span", { class: `word ${word}` }, word), reason || "-"]));
  if (rows.length) cell.append(element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Other settings of ${button.dataset.paper} ${button.dataset.claim}` }, table(["other setting", "ours", "95% interval", "verdict", "reason"], rows)));
  entry.after(element("tr", { class: "detail" }, cell));
}
function closeClaim(entry) {
  const button = entry.querySelector("button.more");
  if (!button || button.getAttribute("aria-expanded") !== "true") return;
  button.setAttribute("aria-expanded", "false");
  entry.nextElementSibling.remove();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button.more");
  if (button) toggleClaim(button);
});

// League: one load at a time.
const load = document.getElementById("load");
if (load) {
  const tables = all(".league");
  const choose = () => tables.forEach((one, place) => (one.hidden = place !== Number(load.value)));
  document.getElementById("choose-load").hidden = false;
  load.addEventListener("change", choose);
  choose();
}

// A run, then one of its requests.
const seconds = (value) => value.toFixed(value < 10 ? 3 : 1);
const sum = (values) => values.reduce((one, other) => one + other, 0);
const split = ([number, ...rest]) => ({ number, facts: rest.slice(0, data.facts.length), service: rest[data.facts.length], values: rest.slice(data.facts.length + 1) });
function bar(values, most) {
  const made = element("div", { class: "bar", "aria-hidden": "true" });
  values.forEach((value, part) => {
    const piece = element("span", { class: `part${part}` });
    piece.style.width = `${(100 * value) / most}%`;
    made.append(piece);
  });
  return made;
}
function showRun(run) {
  const place = document.getElementById("run");
  const requests = run.requests.map(split);
  const most = Math.max(...requests.map(({ values }) => sum(values)), 1e-9);
  const keys = data.parts.map((part, number) => element("span", { class: "fact" }, element("span", { class: `key part${number}` }), part));
  const rows = requests.map((request) => {
    const button = element("button", { type: "button" }, `request ${request.number}`);
    button.addEventListener("click", () => showRequest(run, request));
    const name = element("td", { "data-value": request.number }, button);
    return row([name, seconds(sum(request.values)), bar(request.values, most), ...request.values.map(seconds), run.services[request.service]], { class: "entry" });
  });
  const names = ["request", "total s", "parts", ...data.parts.map((part) => `${part} s`), "service"];
  const count = run.requests.length < run.count ? `The slowest ${run.requests.length} of ${run.count} finished requests.` : `All ${run.count} finished requests.`;
  place.replaceChildren(
    element("h3", {}, run.name),
    element("p", { class: "note" }, `${run.setting}; started ${run.started}. ${run.engine[0].toUpperCase()}${run.engine.slice(1)}.`),
    element("p", {}, `${count} `, ...keys),
    element("div", { id: "request", tabindex: "-1" }),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests" }, table(names, rows, { class: "sortable" }, true)),
    element("details", {}, element("summary", {}, "configuration"), element("pre", { tabindex: "0" }, run.config)),
  );
  place.focus();
}
function showRequest(run, { number, facts, service, values }) {
  const total = sum(values);
  const rows = data.parts.map((part, place) => row([element("th", { scope: "row" }, element("span", { class: `key part${place}` }), part), seconds(values[place]), `${((100 * values[place]) / (total || 1)).toFixed(0)}%`, seconds(run.medians[service][place])]));
  const said = data.facts.map((fact, place) => element("span", { class: "fact" }, `${fact.replaceAll("_", " ")} `, element("b", {}, String(facts[place]))));
  const place = document.getElementById("request");
  place.replaceChildren(
    element("h4", {}, `Request ${number} of ${run.services[service]}: ${seconds(total)} s from arrival to the last token`),
    element("p", {}, ...said),
    bar(values, total || 1),
    table(["part", "seconds", "share", "median of its service, s"], rows),
    element("p", { class: "note" }, element("code", {}, `python -m harness.why results/${run.name} ${number}`)),
  );
  place.focus();
}
