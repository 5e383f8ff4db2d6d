"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const filter = document.getElementById("filter");
const found = document.getElementById("found");

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

// Filter: rows whose text has all words; a figure stays while its title or one of its rows fits.
function applyFilter() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const fits = (text) => words.every((word) => text.toLowerCase().includes(word));
  let shown = 0;
  for (const row of document.querySelectorAll("tr.entry")) {
    const figure = row.closest("details.figure");
    const title = figure ? figure.querySelector("summary").textContent + figure.id : "";
    row.hidden = words.length > 0 && !fits(row.textContent + " " + title);
    shown += row.hidden ? 0 : 1;
  }
  for (const figure of document.querySelectorAll("details.figure")) {
    const rows = figure.querySelectorAll("tr.entry");
    const has = [...rows].some((row) => !row.hidden);
    figure.hidden = words.length > 0 && !has && !fits(figure.querySelector("summary").textContent + figure.id);
  }
  found.textContent = words.length ? `${shown} rows fit` : "";
}
filter.addEventListener("input", applyFilter);

document.addEventListener("keydown", (event) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (event.key === "/" && !typing) {
    event.preventDefault();
    filter.focus();
  } else if (event.key === "Escape") {
    filter.value = "";
    applyFilter();
  }
});

// Sort: by number where every cell begins with one, else as text.
function valueOf(row, column) {
  const cell = row.cells[column];
  return cell.dataset.value ?? cell.textContent.trim();
}
function sortBy(header) {
  const table = header.closest("table");
  const column = header.cellIndex;
  const falls = header.getAttribute("aria-sort") === "ascending";
  const rows = [...table.tBodies[0].rows];
  const numbers = rows.map((row) => parseFloat(valueOf(row, column).replace(/,/g, "")));
  const numeric = numbers.filter((value) => !Number.isNaN(value)).length > rows.length / 2;
  const order = rows.map((row, place) => [row, numeric ? numbers[place] : valueOf(row, column)]);
  order.sort(([, one], [, other]) => {
    if (!numeric) return (falls ? -1 : 1) * one.localeCompare(other);
    if (Number.isNaN(one) || Number.isNaN(other)) return Number.isNaN(one) - Number.isNaN(other);
    return (falls ? -1 : 1) * (one - other);
  });
  table.tBodies[0].append(...order.map(([row]) => row));
  for (const other of table.tHead.rows[0].cells) if (other.hasAttribute("aria-sort")) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", falls ? "descending" : "ascending");
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
function showTheme() {
  theme.textContent = isDark() ? "Light" : "Dark";
  theme.setAttribute("aria-pressed", String(isDark()));
}
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
});
showTheme();

const open = document.getElementById("open");
open.addEventListener("click", () => {
  const figures = [...document.querySelectorAll("details.figure")];
  const all = figures.some((figure) => !figure.open);
  for (const figure of figures) figure.open = all;
  open.textContent = all ? "Close all figures" : "Open all figures";
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

// A run, then one of its requests.
const seconds = (value) => value.toFixed(value < 10 ? 3 : 1);
function bar(values, most) {
  const made = element("div", { class: "bar", "aria-hidden": "true" });
  values.forEach((value, part) => made.append(element("span", { class: `part${part}`, style: `width:${(100 * value) / most}%` })));
  return made;
}
function showRun(run) {
  const place = document.getElementById("run");
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const most = Math.max(...run.requests.map(([, ...values]) => total(values)), 1e-9);
  const keys = data.parts.map((part, number) => element("span", {}, element("span", { class: `key part${number}` }), part));
  const body = element("tbody");
  for (const [request, ...values] of run.requests) {
    const button = element("button", { type: "button" }, `request ${request}`);
    button.addEventListener("click", () => showRequest(run, request, values));
    body.append(element("tr", {}, element("td", {}, button), element("td", {}, seconds(total(values))), element("td", {}, bar(values, most))));
  }
  const head = element("thead", {}, element("tr", {}, ...["request", "seconds to the last token", "where they went"].map((name) => element("th", { scope: "col" }, name))));
  const config = element("details", {}, element("summary", {}, "configuration"), element("pre", { tabindex: "0" }, run.config));
  const all = run.requests.length < run.count ? `the slowest ${run.requests.length} of ${run.count} requests` : `${run.count} requests`;
  place.replaceChildren(
    element("h3", {}, run.name),
    element("p", {}, `${run.engine}; ${all}`, ...keys),
    element("div", { id: "request", tabindex: "-1" }),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Requests" }, element("table", {}, head, body)),
    config,
  );
  place.focus();
}
function showRequest(run, request, values) {
  const head = element("tr", {}, ...["part", "seconds", "median of the run"].map((name) => element("th", { scope: "col" }, name)));
  const rows = data.parts.map((part, number) => element("tr", {}, element("th", { scope: "row" }, part), element("td", {}, seconds(values[number])), element("td", {}, seconds(run.medians[number]))));
  const place = document.getElementById("request");
  place.replaceChildren(element("h4", {}, `Request ${request}`), element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
  place.focus();
}
