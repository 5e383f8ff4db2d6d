
// Where claims come out: a claim's settings as dots over two axes, filtered by any of them.
const plot = document.getElementById("map-plot");
const chosenClaim = document.getElementById("map-claim");
const chosenAxes = ["map-across", "map-up"].map((id) => document.getElementById(id));
const PLOT = { left: 64, right: 640, top: 12, bottom: 440, dot: 4, reach: 14, steps: 200, nearest: 8 };
const EFFECT = "effect";
const hiddenOutcomes = new Set();
let map = null; // the claim that is shown, with its paper and space
let limits = {}; // axis -> [from, to] in its own values, of axes that are filtered
let chosen = 0; // number of a setting

const few = (value) => (value === null || value === undefined ? "-" : String(Number(value.toPrecision(3))));
const effectOf = (claim, value) => (value === null ? "-" : claim.unit.trim() === "%" ? `${few(100 * value)}%` : `${few(value)}${claim.unit}`);
const spanOf = (claim, low, high) => (low === null || high === null ? "" : ` [${effectOf(claim, low)}, ${effectOf(claim, high)}]`);
const outcomeOf = (claim, number) => data.maps.outcomes[claim.outcome[number]];
const asCode = (text) => element("code", {}, text);
const fact = (name, value) => element("span", { class: "fact" }, `${name} `, element("b", {}, value));
const drawn = (name, attributes, text = "") => {
  const made = document.createElementNS(plot.namespaceURI, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.textContent = text;
  plot.append(made);
  return made;
};

// An axis is a dimension, what the baseline went through, or the effect; a share is a place on it.
function axesOf(claim, space) {
  const axes = space.axes.map(([name, short, words, isLog, low, high]) => ({ name, short, words, isLog, low, high, values: space.columns[name] }));
  const values = claim.value.filter((value) => value !== null).sort((one, other) => one - other);
  const end = (share) => values[Math.round(share * (values.length - 1))];
  if (values.length && end(0.01) < end(0.99)) axes.push({ name: EFFECT, short: EFFECT, words: `effect: ${claim.says}`, isLog: false, low: end(0.01), high: end(0.99), values: claim.value });
  return axes;
}
function shareOn({ isLog, low, high }, value) {
  const scale = isLog ? Math.log : Number;
  return (scale(value) - scale(low)) / (scale(high) - scale(low));
}
const valueAt = ({ isLog, low, high }, share) => (isLog ? low * (high / low) ** share : low + share * (high - low));
const withinEnds = (share) => Math.min(1, Math.max(0, share));
const across = (axis, value) => PLOT.left + withinEnds(shareOn(axis, value)) * (PLOT.right - PLOT.left);
const up = (axis, value) => PLOT.bottom - withinEnds(shareOn(axis, value)) * (PLOT.bottom - PLOT.top);
function ticksOf({ isLog, low, high }) {
  const powers = (from, to) => Array.from({ length: to - from + 1 }, (_, place) => 10 ** (from + place));
  const inside = (values) => values.filter((value) => value >= low * (1 - 1e-9) && value <= high + 1e-9);
  if (isLog) {
    const decades = powers(Math.floor(Math.log10(low)), Math.ceil(Math.log10(high)));
    const every = inside(decades.flatMap((power) => [power, 2 * power, 5 * power]));
    return every.length > 10 ? inside(decades) : every.length > 1 ? every : [low, high];
  }
  const rough = (high - low) / 5, power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((times) => times * power).find((size) => size >= rough);
  return Array.from({ length: 12 }, (_, place) => (Math.ceil(low / step) + place) * step).filter((value) => value <= high + 1e-9);
}
const chosenPair = () => chosenAxes.map((select) => map.axes.find(({ name }) => name === select.value));
const isWithin = (number) => map.axes.every(({ name, values }) => !limits[name] || (values[number] !== null && values[number] >= limits[name][0] && values[number] <= limits[name][1]));
const shownCells = () => map.claim.outcome.map((_, number) => number).filter((number) => isWithin(number) && !hiddenOutcomes.has(map.claim.outcome[number]));

function drawAxes(x, y) {
  const { left, right, top, bottom } = PLOT;
  const label = (axis, value) => (axis.name === EFFECT ? effectOf(map.claim, value) : few(value));
  for (const value of ticksOf(x)) {
    drawn("line", { class: "grid", x1: across(x, value), x2: across(x, value), y1: top, y2: bottom });
    drawn("text", { x: across(x, value), y: bottom + 18, "text-anchor": "middle" }, label(x, value));
  }
  for (const value of ticksOf(y)) {
    drawn("line", { class: "grid", x1: left, x2: right, y1: up(y, value), y2: up(y, value) });
    drawn("text", { x: left - 6, y: up(y, value) + 4, "text-anchor": "end" }, label(y, value));
  }
  drawn("text", { x: (left + right) / 2, y: bottom + 42, "text-anchor": "middle" }, x.words);
  drawn("text", { transform: `translate(16 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.words);
}
function drawFrames(x, y) {
  for (const box of map.claim.boxes.filter((one) => one[x.name] || one[y.name])) {
    const [[x1, x2], [y1, y2]] = [x, y].map(({ name, low, high }) => [box[name]?.[0] ?? low, box[name]?.[1] ?? high]);
    drawn("rect", { class: "frame", x: across(x, x1), y: up(y, y2), width: across(x, x2) - across(x, x1), height: up(y, y1) - up(y, y2) });
  }
}
const isDrawn = (number, [x, y]) => x.values[number] !== null && y.values[number] !== null;
function draw() {
  const pair = chosenPair(), [x, y] = pair, cells = shownCells();
  plot.replaceChildren();
  plot.setAttribute("aria-label", `${map.claim.says}: settings by ${x.words} and ${y.words}; arrow keys select one`);
  drawAxes(x, y);
  for (const number of cells.filter((it) => isDrawn(it, pair))) {
    drawn("circle", { class: `dot outcome${map.claim.outcome[number]}`, cx: across(x, x.values[number]), cy: up(y, y.values[number]), r: PLOT.dot });
  }
  drawFrames(x, y);
  for (const point of map.claim.points.filter((it) => x.name in it && y.name in it)) drawn("text", { class: "star", x: across(x, point[x.name]), y: up(y, point[y.name]) + 8, "text-anchor": "middle" }, "\u2605");
  if (isDrawn(chosen, pair)) drawn("circle", { class: "ring", cx: across(x, x.values[chosen]), cy: up(y, y.values[chosen]), r: 2 * PLOT.dot });
  const come = cells.filter((number) => map.claim.outcome[number] === 0).length;
  document.getElementById("map-near")?.replaceChildren(nearestTable());
  document.getElementById("map-count").textContent = `${cells.length} of ${map.claim.outcome.length} settings shown; ${come} of them come out${cells.length ? ` (${((100 * come) / cells.length).toFixed(0)}%)` : ""}.`;
}

// What is said of a claim, its outcomes, and a pair of sliders for each axis.
function showSentences() {
  const { claim, paper } = map, [word, value, low, high] = claim.start;
  const influence = claim.influence.map((name) => map.axes.find((axis) => axis.name === name)?.short ?? name);
  const said = [...claim.sentences.map((text) => element("p", {}, text)), element("p", {}, `Decided by: ${influence.join(", ") || "nothing that is seen"}.`)];
  const start = element("p", {}, `At the paper's own point (${claim.from}): ${word}, ${effectOf(claim, value)}${spanOf(claim, low, high)}; printed: ${claim.printed}.`);
  document.getElementById("map-said").replaceChildren(element("h3", {}, `${claim.says} (${paper.paper} ${claim.id})`), ...said, start, element("p", { class: "note" }, claim.basis));
}
function showLegend() {
  const labels = data.maps.outcomes.map((word, place) => {
    const box = element("input", { type: "checkbox" });
    const key = element("span", { class: `key dotted outcome${place}` });
    const count = map.claim.outcome.filter((it) => it === place).length;
    box.checked = !hiddenOutcomes.has(place);
    box.addEventListener("change", () => (hiddenOutcomes[box.checked ? "delete" : "add"](place), draw()));
    return count ? [element("label", { class: "fact" }, box, key, `${word} `, element("b", {}, String(count)))] : [];
  });
  document.getElementById("map-legend").replaceChildren(...labels.flat());
}
function slider(axis, end, tell) {
  const made = element("input", { type: "range", min: 0, max: PLOT.steps, "aria-label": `${axis.short} ${end ? "to" : "from"}` });
  const at = limits[axis.name]?.[end];
  made.value = Number.isFinite(at) ? PLOT.steps * withinEnds(shareOn(axis, at)) : end * PLOT.steps;
  made.addEventListener("input", () => {
    const own = limits[axis.name] ?? [-Infinity, Infinity];
    own[end] = Number(made.value) === end * PLOT.steps ? (end ? Infinity : -Infinity) : valueAt(axis, made.value / PLOT.steps);
    if (own.some(Number.isFinite)) limits[axis.name] = own;
    else delete limits[axis.name];
    tell();
    draw();
  });
  return made;
}
function filterOf(axis) {
  const said = element("td", { class: "span" });
  const text = (value) => (axis.name === EFFECT ? effectOf(map.claim, value) : few(value));
  const tell = () => {
    const [from, to] = limits[axis.name] ?? [-Infinity, Infinity];
    if (Number.isFinite(from)) said.textContent = Number.isFinite(to) ? `${text(from)} to ${text(to)}` : `${text(from)} and more`;
    else said.textContent = Number.isFinite(to) ? `up to ${text(to)}` : "all";
  };
  tell();
  return row([element("th", { scope: "row", title: axis.words }, axis.short), slider(axis, 0, tell), slider(axis, 1, tell), said]);
}
function showFilters() {
  const press = (text, follow) => {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => (follow(), showFilters(), draw()));
    return button;
  };
  const inside = (box) => (limits = Object.fromEntries(Object.entries(box).map(([name, [low, high]]) => [name, [low ?? -Infinity, high ?? Infinity]])));
  const buttons = map.claim.boxes.map((box, place) => press(`Inside the ${place ? "second " : ""}condition`, () => inside(box)));
  buttons.push(press("Show all", () => (limits = {})));
  document.getElementById("map-filters").replaceChildren(element("legend", {}, "Show settings with"), table(["", "from", "to", ""], map.axes.map(filterOf)), element("p", {}, ...buttons.flatMap((button) => [button, " "])));
}

// A setting: what came out, the command that serves it, and the settings most like it.
const dimensions = () => map.axes.slice(0, map.space.dimensions);
const distance = (one, other) => Math.hypot(...dimensions().map((axis) => shareOn(axis, axis.values[one]) - shareOn(axis, axis.values[other])));
function nearestTable() {
  const near = shownCells().filter((number) => number !== chosen).sort((one, other) => distance(chosen, one) - distance(chosen, other)).slice(0, PLOT.nearest);
  const rows = [chosen, ...near].map((number) => {
    const button = element("button", { type: "button", "aria-pressed": String(number === chosen) }, `setting ${number}`);
    button.addEventListener("click", () => (choose(number), document.getElementById("map-cell").focus()));
    const { claim } = map;
    return row([button, outcomeOf(claim, number), effectOf(claim, claim.value[number]), spanOf(claim, claim.low[number], claim.high[number]).trim() || "-", ...dimensions().map((axis) => few(axis.values[number]))]);
  });
  return element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The nearest settings" }, table(["setting", "outcome", "effect", "95% interval", ...dimensions().map((axis) => axis.short)], rows));
}
function choose(number) {
  chosen = number;
  const { claim, paper, space } = map, columns = space.columns;
  const others = paper.claims.filter((one) => one.space === claim.space && one !== claim).map((one) => fact(one.says, `${outcomeOf(one, number)} ${effectOf(one, one.value[number])}`));
  const share = claim.share[number] === null ? "" : `; ${few(claim.share[number])} of the printed effect`;
  const value = `${effectOf(claim, claim.value[number])}${spanOf(claim, claim.low[number], claim.high[number])}${share}; ${columns.seeds[number]} seeds`;
  const facts = map.axes.filter(({ name }) => name !== EFFECT).map((axis) => fact(axis.short, few(axis.values[number])));
  const capacity = columns.capacity_per_s[number] === null ? [] : [fact("the baseline's capacity", `${few(columns.capacity_per_s[number])} requests/s`)];
  document.getElementById("map-cell").replaceChildren(
    element("h3", { role: "status" }, `Setting ${number} of ${claim.space}: ${outcomeOf(claim, number)}`),
    element("p", {}, space.why[number] ?? `${claim.says}: ${value}.`),
    element("p", {}, ...facts, ...capacity),
    ...(others.length ? [element("p", {}, "Other claims here: ", ...others)] : []),
    space.why[number] ? "" : element("p", {}, "Open its runs: ", asCode(`python -m harness conditions ${paper.paper} --cell ${claim.space}:${number}`), " serves each side with these seeds and keeps every run below ", asCode(`results/${paper.paper}_${claim.space}_${number}/`), "; then ", asCode("python -m harness why FOLDER REQUEST"), ", or ", asCode("python -m harness report"), " for the runs below."),
    element("h4", {}, "Nearest settings of those shown"),
    element("div", { id: "map-near" }),
  );
  draw();
}
plot.addEventListener("click", (event) => {
  const box = plot.getBoundingClientRect(), scale = plot.viewBox.baseVal.width / box.width;
  const [x, y] = chosenPair(), at = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
  const away = (number) => Math.hypot(across(x, x.values[number]) - at[0], up(y, y.values[number]) - at[1]);
  const near = shownCells().filter((number) => isDrawn(number, [x, y]) && away(number) < PLOT.reach);
  if (near.length) choose(near.reduce((one, other) => (away(other) < away(one) ? other : one)));
});
plot.addEventListener("keydown", (event) => {
  const direction = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowUp: [1, 1], ArrowDown: [1, -1] }[event.key];
  if (!direction) return;
  event.preventDefault();
  const pair = chosenPair(), axis = pair[direction[0]], step = direction[1];
  const order = shownCells().filter((number) => isDrawn(number, pair)).sort((one, other) => step * (axis.values[one] - axis.values[other]));
  const next = order.find((number) => step * (axis.values[number] - axis.values[chosen]) > 0) ?? order[0];
  if (next !== undefined) choose(next);
});

function showMap() {
  const [place, number] = chosenClaim.value.split(" ").map(Number);
  const paper = data.maps.papers[place], claim = paper.claims[number], space = paper.spaces[claim.space];
  const isOther = map?.space !== space;
  map = { paper, claim, space, axes: axesOf(claim, space) };
  if (isOther) limits = {};
  else delete limits[EFFECT];
  const strongest = [...new Set([...claim.influence, ...map.axes.map(({ name }) => name)])].slice(0, 2);
  if (strongest[1] === "load") strongest.reverse();
  chosenAxes.forEach((select, end) => {
    select.replaceChildren(...map.axes.map(({ name, words }) => element("option", { value: name }, words)));
    select.value = strongest[end];
  });
  const own = claim.points[Math.floor(claim.points.length / 2)];
  const away = (it) => Math.hypot(...dimensions().map((axis) => shareOn(axis, axis.values[it]) - shareOn(axis, own[axis.name])));
  if (isOther) chosen = own ? claim.outcome.map((_, it) => it).reduce((one, other) => (away(other) < away(one) ? other : one)) : 0;
  showSentences();
  showLegend();
  showFilters();
  choose(chosen);
}
chosenClaim.addEventListener("change", showMap);
for (const select of chosenAxes) select.addEventListener("change", draw);
showMap();
