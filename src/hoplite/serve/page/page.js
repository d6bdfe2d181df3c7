// The page of `hoplite serve`. All text comes from data, so it becomes text nodes, never HTML.
"use strict";

const MOST_OUTPUTS = 12;
const MOST_NEAREST = 6; // rows; the others are there when they are asked for
const WAIT = 120; // milliseconds after the last key
const TITLE = document.title; // before a node is shown
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const { task, explained, changed: unchangeable } = document.body.dataset;
const numbers = task === "regression";

let now = null; // the node that is shown: the answer of /api/node
let values = new Map(); // the values of it that were changed
const unread = new Set(); // the names of fields that hold no number, or no date: nothing is asked till they do
const turns = { node: 0, change: 0, explanation: 0, flips: 0, features: 0 }; // the last question of each kind

/* ---- small things ---- */

function made(tag, attributes = {}, ...children) {
  const space = ["svg", "line", "circle", "text", "title", "g"].includes(tag) || attributes.svg;
  const element = space ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name !== "svg" && value !== null && value !== false) element.setAttribute(name, value);
  }
  element.append(...children.map((child) => (child instanceof Node ? child : String(child))));
  return element;
}

function show(id, ...children) {
  $(id).replaceChildren(...children);
}

const MINUS = "\u2212";
const plain = (text) => text.replace("-", MINUS);
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const signed = (value) => (value > 0 ? "+" : "") + plain(Number(value.toPrecision(3)).toString());
const rounded = (value) => plain(Number(value.toPrecision(4)).toString());
const number = (value) => plain(Number(value.toPrecision(6)).toString());
const cellText = (value) => (typeof value === "number" ? number(value) : value === null ? "missing" : value === "" ? "(empty)" : value);
const short = (text, most = 40) => (String(text).length > most ? `${String(text).slice(0, most - 1)}\u2026` : String(text));
const chance = (share, digits = 1) => (digits === 1 && share > 0 && share < 0.0005 ? "under 0.1 %" : digits === 1 && share >= 0.9995 && share < 1 ? "over 99.9 %" : `${(100 * share).toFixed(digits)} %`);
const amountOf = (output) => output.probability ?? output.value;
const valueOf = (output) => (numbers ? number(output.value) : percent(output.probability));
const linkTo = (id) => `?id=${encodeURIComponent(id)}`;

async function ask(path, parameters, body) {
  const query = new URLSearchParams(parameters).toString();
  const options = body && { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(query ? `${path}?${query}` : path, options);
  const result = await answer.json();
  if (!answer.ok) throw new Error(result.error);
  return result;
}

function say(text, wrong = false) {
  $("status").textContent = text;
  $("status").classList.toggle("wrong", wrong);
}

function later(action) {
  let timer = 0;
  const soon = (...rest) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...rest), WAIT);
  };
  soon.cancel = () => clearTimeout(timer);
  return soon;
}

// Whether an answer is still wanted: not after the next question of its kind, a reset or another node.
function wanted(kind) {
  const mine = turns[kind];
  return () => mine === turns[kind];
}

function asking(kind) {
  turns[kind] += 1;
  return wanted(kind);
}

function forget(...kinds) {
  kinds.forEach(asking);
  recompute.cancel();
}

/* ---- tables and bars ---- */

function bar(share, kind = "") {
  const inner = made("i");
  const track = made("span", { class: `track ${kind}`, "aria-hidden": "true" }, inner);
  const width = Math.min(Math.abs(share), 1) * (kind === "signed" ? 50 : 100);
  inner.style.width = `${width}%`;
  if (kind === "signed") inner.style.left = share < 0 ? `${50 - width}%` : "50%";
  if (share < 0) inner.className = "minus";
  return track;
}

function table(caption, heads, rows) {
  const cell = (content, place) => {
    if (content && content.bar) return made("td", { class: "bar" }, ...content.bar);
    const name = place && content.text !== undefined ? "" : "number";
    const inside = content instanceof Node ? content : content.text ?? content;
    return place ? made("td", { class: name }, inside) : made("th", { scope: "row" }, inside);
  };
  return made("table", {},
    made("caption", {}, caption),
    made("thead", {}, made("tr", {}, ...heads.map((head, i) => made("th", { scope: "col", class: i && head.number ? "number" : "" }, head.number ?? head)))),
    made("tbody", {}, ...rows.map(({ none, cells }) => made("tr", { class: none ? "none" : "" }, ...cells.map(cell)))));
}

function nodeLink(id) {
  return made("a", { href: linkTo(id), onclick: (event) => follow(event, id) }, short(cellText(String(id)), 60));
}

function follow(event, id) {
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  visit(String(id));
}

function contributions(caption, head, parts, rest, others, fixed) {
  const most = Math.max(...parts.map((part) => Math.abs(part.amount)), 1e-300);
  const rows = parts.map((part) => ({ cells: [part.name, { bar: [bar(part.amount / most, "signed")] }, signed(part.amount)] }));
  if (others) {
    rows.push({ none: true, cells: [`${others.toLocaleString("en")} others`, { bar: [] }, signed(rest)] });
  }
  for (const [name, amount] of fixed) rows.push({ none: true, cells: [name, { bar: [] }, signed(amount)] });
  return made("div", {}, table(caption, [head, "", { number: "adds" }], rows));
}

/* ---- the prediction ---- */

function strongest(outputs) {
  return [...outputs].sort((a, b) => amountOf(b) - amountOf(a)).slice(0, MOST_OUTPUTS);
}

// The class of a prediction, and by which threshold, in as many digits as tell the two apart.
function decided({ predicted, outputs, threshold }) {
  if (!threshold) return cellText(predicted === "|" ? "none" : predicted);
  const { probability: value } = outputs.find((output) => output.name === threshold.class);
  const inside = predicted === threshold.class;
  const level = threshold.probability;
  const tied = value === level || value > level !== inside;
  let digits = 1;
  while (!tied && digits < 15 && chance(value, digits) === chance(level, digits)) digits += 1;
  const where = `is ${tied ? "at" : inside ? "above" : "below"} ${inside ? "the" : "its"} threshold of ${chance(level, digits)}`;
  return inside
    ? `${cellText(predicted)}, as its probability of ${chance(value, digits)} ${where}`
    : `${cellText(predicted)}, as the probability of ${cellText(threshold.class)}, ${chance(value, digits)}, ${where}`;
}

function showPrediction(node) {
  const { prediction } = node;
  $("threshold").hidden = !prediction.threshold;
  $("threshold").textContent = prediction.threshold ? `It is ${decided(prediction)}.` : "";
  $("node-id").textContent = `Node ${cellText(node.id)}`;
  $("predicted").textContent = numbers ? number(prediction.predicted) : prediction.predicted === "|" ? "none" : prediction.predicted;
  $("label").textContent = node.label === null ? "Its own label is not known." : `Its own label is ${numbers ? number(Number(node.label)) : node.label}.`;
  const rows = strongest(prediction.outputs).map((output) => ({ cells: [output.name, { bar: [bar(amountOf(output))] }, valueOf(output)] }));
  show("outputs", ...(numbers ? [] : [table(task === "multilabel" ? "Each label" : "Each class", ["", "", { number: "probability" }], rows)]));
}

function showNeighbours({ top, total }, most = MOST_NEAREST) {
  const rows = top.slice(0, most).map((one) => ({ cells: [nodeLink(one.id), { text: cellText(one.predicted) }, number(one.weight)] }));
  const caption = total > rows.length ? `The ${rows.length} heaviest of ${total.toLocaleString("en")} edges` : `${total} edge${total === 1 ? "" : "s"}`;
  show("neighbours", total ? table(caption, ["node", "predicted", { number: "weight" }], rows) : made("p", { class: "quiet" }, "The node has no edge."));
  if (top.length > rows.length) {
    const all = () => {
      showNeighbours({ top, total }, top.length);
      $("neighbours").querySelectorAll("a")[rows.length].focus();
    };
    $("neighbours").append(made("button", { type: "button", class: "link", onclick: all }, `Show ${top.length - rows.length} more`));
  }
}

/* ---- why ---- */

function options(select, names, chosen) {
  select.replaceChildren(...names.map((name) => {
    const option = made("option", { value: name }, short(cellText(name)));
    option.selected = name === chosen;
    return option;
  }));
}

function showWhy(found) {
  const names = now.prediction.outputs.map((output) => output.name);
  options($("class"), names, found.class);
  options($("against"), names.filter((name) => name !== found.class), found.against);
  $("contrast").hidden = numbers;
  $("against-label").hidden = found.against === null;
  const border = found.threshold;
  const added = border ? border.contribution : 0;
  const margin = border ? "Its margin over the threshold is" : "Its margin, the one logit minus the other, is";
  const what = numbers ? "The value is" : found.against === null ? "Its logit is" : margin;
  const parts = "what each hop adds, or each node, or each feature";
  const labels = found.neighbour_labels;
  const labelled = labels ? labels.top.reduce((total, one) => total + one.contribution, labels.rest) : 0;
  const fixed = [...(found.constant ? [`${rounded(found.constant)} for every node`] : []), ...(border ? [`${rounded(added)} for the threshold of ${chance(border.probability)}`] : []), ...(labels ? [`${rounded(labelled)} by labels of neighbours`] : [])];
  const sum = fixed.length
    ? `${what} ${rounded(found.margin)}: ${fixed.join(", ")}, and ${rounded(found.margin - found.constant - added - labelled)}, the sum of ${parts}.`
    : `${what} ${rounded(found.margin)}, the sum of ${parts}.`;
  const apart = border ? ` Without the threshold it is ${rounded(found.margin - added)}, the one logit less the other.` : "";
  const { temperature } = found.model;
  const calibrated = temperature === 1 ? "" : ` Probabilities are those of the logits divided by the temperature ${rounded(temperature)}.`;
  $("why-sum").textContent = sum + apart + calibrated;
  const same = [...(found.constant ? [["constant", found.constant]] : []), ...(border ? [["threshold", added]] : []), ...(labels ? [["labels of neighbours", labelled]] : [])];
  const hops = found.hops.map((hop) => ({ name: hop.relation ? `hop ${hop.hop}, ${hop.relation}` : `hop ${hop.hop}`, amount: hop.contribution }));
  const nodes = found.nodes.top.map((node) => ({ name: nodeLink(node.id), amount: node.contribution }));
  const groups = (found.nodes.groups ?? []).map(({ hop, count, contribution }) => [`${count.toLocaleString("en")} node${count === 1 ? "" : "s"} at hop ${hop}`, contribution]);
  const features = found.features.top.map((one) => ({
    name: made("span", { title: `at this node: ${cellText(one.value)}` }, short(one.name, 60)), amount: one.contribution,
  }));
  show("parts",
    contributions("By hop", "hop", hops, 0, 0, same),
    contributions("By node", "node", nodes, 0, 0, [...groups, ...same]),
    contributions("By feature, over all nodes within reach", "feature", features, found.features.rest, found.features.others, same),
    ...(labels ? [contributions("By label of a neighbour", "node", labels.top.map((one) => ({ name: made("span", { title: `its label: ${cellText(one.label)}` }, nodeLink(one.id)), amount: one.contribution })), labels.rest, labels.others, [])] : []));
  draw(found.neighbourhood.nodes.map((node) => ({ ...node, key: node.index })), found.neighbourhood.edges);
  const [more, less] = numbers ? ["raises it", "lowers it"] : ["for it", "against it"];
  show("drawing-note", "The nodes that count most and the ways to them; area is what a node adds:",
    made("span", { class: "sign" }, made("span", { class: "dot" }), `${more}, `),
    made("span", { class: "sign" }, made("span", { class: "dot minus" }), `${less}.`), " Rings are steps.");
}

function showFlips({ found, checked }) {
  if (!found.length) {
    show("flips-found", made("p", { class: "quiet" }, `None of the ${checked} values that count most would, changed alone.`));
    return;
  }
  const side = { above: ["or more", "or later"], below: ["or less", "or earlier"], equal: ["", ""] };
  const wanted = (flip) => made("span", {}, `${cellText(flip.to)} ${side[flip.side][Number(typeof flip.to === "string")]}`.trim(),
    ...(flip.outside ? [made("small", {}, "outside the range seen in training")] : []));
  const rows = found.map((flip) => ({ cells: [
    made("span", {}, short(flip.name, 60), made("small", {}, `is ${cellText(flip.value)}`)),
    { text: wanted(flip) }, { text: flip.becomes }] }));
  show("flips-found", table("One value of the node, changed alone", ["value", "would be", "then it is"], rows));
}

/* ---- the neighbourhood ---- */

function draw(nodes, edges) {
  const size = 440;
  const middle = size / 2;
  const place = new Map();
  const last = Math.max(1, ...nodes.map((node) => node.distance ?? 0));
  const steps = nodes.map((node, i) => (i ? node.distance || last : 0));
  const angle = new Map([[nodes[0].key, 0]]);
  for (let step = 0; step <= last; step += 1) {
    const ring = nodes.filter((_, i) => steps[i] === step);
    const parent = (node) => {
      const near = edges.flatMap(([a, b]) => (a === node.key ? [b] : b === node.key ? [a] : [])).filter((key) => place.has(key));
      return near.length ? angle.get(near[0]) : 0;
    };
    const order = ring.map((node) => [parent(node), node]).sort((a, b) => a[0] - b[0]);
    const gap = Math.min(0.4, (2 * Math.PI) / order.length); // so that no two lie on each other
    let before = -Infinity;
    order.forEach(([wanted, node], i) => {
      // the first ring is filled evenly; the others stay behind the node that leads there
      const turned = step < 2 ? (2 * Math.PI * i) / order.length - Math.PI / 2 : Math.max(wanted, before + gap);
      before = turned;
      const far = step * ((middle - 34) / last);
      angle.set(node.key, turned);
      place.set(node.key, [middle + far * Math.cos(turned), middle + far * Math.sin(turned)]);
    });
  }
  const picture = made("svg", { viewBox: `0 0 ${size} ${size}`, role: "group", "aria-label": "The neighbourhood, drawn; the tables have the same nodes" });
  for (let step = 1; step <= last; step += 1) {
    picture.append(made("circle", { class: "ring", cx: middle, cy: middle, r: step * ((middle - 34) / last) }));
  }
  const heaviest = Math.max(...edges.map((edge) => edge[2]), 1e-300);
  for (const [a, b, weight] of edges) {
    const [[x1, y1], [x2, y2]] = [place.get(a), place.get(b)];
    picture.append(made("line", { x1, y1, x2, y2, "stroke-width": 0.75 + 2 * Math.sqrt(Math.abs(weight) / heaviest) }));
  }
  const most = Math.max(...nodes.map((node) => Math.abs(node.contribution ?? 0)), 1e-300);
  const named = nodes.length <= 16 ? 16 : 9;
  nodes.forEach((node, i) => {
    const [cx, cy] = place.get(node.key);
    const amount = node.contribution;
    const kind = amount === undefined ? "" : amount < 0 ? "minus" : "plus";
    const r = amount === undefined ? 8 : 4 + 13 * Math.sqrt(Math.abs(amount) / most);
    const about = `${cellText(String(node.id))}${node.label === null ? "" : `, ${node.label}`}${amount === undefined ? "" : `: ${signed(amount)}`}`;
    const link = made("a", { svg: true, href: linkTo(node.id), "aria-label": short(about, 200), onclick: (event) => follow(event, node.id) },
      made("title", {}, about), made("circle", { class: i ? kind : `${kind} middle`, cx, cy, r: i ? r : Math.max(r, 8) }));
    if (i < named) link.append(made("text", { x: cx, y: cy > size - 40 ? cy - r - 5 : cy + r + 13 }, short(cellText(String(node.id)), 14)));
    picture.append(link);
  });
  show("drawing", picture);
}

function drawNearest(node) {
  const near = node.neighbours.top.slice(0, 20).map((one, i) => ({ ...one, key: i + 1, distance: 1 }));
  draw([{ id: node.id, label: node.label, key: 0, distance: 0 }, ...near], near.map((one) => [0, one.key, one.weight]));
  show("drawing-note", near.length ? "Its nearest nodes." : "The node has no edge.");
}

/* ---- changes ---- */

function input(feature) {
  const id = `value-${$("values").childElementCount}`;
  const listed = { truth: ["true", "false"], text: feature.choices }[feature.kind];
  const gap = made("option", {}, "(missing)"); // known by itself, as a text may be any, "missing" too
  let field;
  if (listed) {
    field = made("select", { id });
    options(field, listed, feature.value);
    if (feature.gap) field.append(gap);
    if (feature.value === null) gap.selected = true;
  } else if (feature.kind === "date") {
    field = made("input", { id, type: "date", value: feature.value });
  } else {
    field = made("input", { id, type: "number", step: "any", value: feature.value, placeholder: feature.gap ? "missing" : "" });
  }
  const wrong = made("small", { id: `${id}-wrong`, role: "alert" });
  const missing = () => (listed ? field.selectedOptions[0] === gap : field.value === "");
  const given = () => (missing() ? null : field.value);
  // such as "-" or "1e400": the browser tells the value "", as if the field were empty
  const garbled = () => !listed && (field.validity.badInput || (feature.kind === "number" && !Number.isFinite(Number(field.value))));
  const had = given();
  let [seen, bad] = [had, false];
  field.dataset.name = feature.name;
  const read = () => {
    if (given() === seen && garbled() === bad) return;
    [seen, bad] = [given(), garbled()];
    const unchanged = seen === had && !bad;
    field.classList.toggle("changed", !unchanged);
    field.setAttribute("aria-invalid", String(bad || (seen === null && !feature.gap && !unchanged)));
    wrong.textContent = bad ? `no ${feature.kind}` : "";
    if (bad) field.setAttribute("aria-describedby", wrong.id);
    else field.removeAttribute("aria-describedby");
    if (bad) unread.add(feature.name);
    else unread.delete(feature.name);
    if (unchanged || bad) values.delete(feature.name);
    else values.set(feature.name, seen !== null && feature.kind === "number" ? Number(seen) : seen);
    recompute();
  };
  // part of a date that is deleted or typed may be no input to the browser
  for (const event of ["input", "keyup", "blur"]) field.addEventListener(event, read);
  return [made("label", { for: id, title: feature.name }, short(feature.name, 60)), made("div", {}, field, wrong)];
}

function showValues(features) {
  values = new Map();
  unread.clear();
  show("values");
  $("reset").disabled = true;
  for (const feature of features) $("values").append(...input(feature));
  showChanged({ before: now.prediction, after: now.prediction });
}

function showChanged({ before, after }) {
  const had = new Map(before.outputs.map((output) => [output.name, output]));
  const rows = strongest(after.outputs).map((output) => {
    const was = had.get(output.name);
    const border = after.threshold ? [output.name === after.threshold.class ? chance(after.threshold.probability) : ""] : [];
    return { cells: [output.name, { bar: numbers ? [] : [bar(was.probability, "before"), bar(output.probability)] }, valueOf(was), valueOf(output), ...border] };
  });
  const heads = ["", "", { number: "was" }, { number: "is" }, ...(after.threshold ? [{ number: "threshold" }] : [])];
  show("changed-outputs", table(`Then it is ${decided(after)}`, heads, rows));
}

const recompute = later(async () => {
  const still = asking("change");
  $("reset").disabled = !values.size && !unread.size;
  if (unread.size) {
    say("");
    return;
  }
  try {
    const found = await ask("/api/change", {}, { id: now.id, features: Object.fromEntries(values) });
    if (!still()) return;
    say("");
    showChanged(found);
  } catch (error) {
    if (still()) say(error.message, true);
  }
});

/* ---- looking a name up ---- */

function combobox(field, list, search, choose) {
  let chosen = -1;
  let asked = 0;
  const items = () => [...list.children];
  const close = () => {
    soon.cancel(); // or it would open again over the answer
    list.hidden = true;
    chosen = -1;
    asked += 1;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const mark = (place) => {
    chosen = place;
    items().forEach((item, i) => item.setAttribute("aria-selected", String(i === place)));
    const item = items()[place];
    if (item) {
      field.setAttribute("aria-activedescendant", item.id);
      item.scrollIntoView({ block: "nearest" });
    }
  };
  const open = async () => {
    const mine = (asked += 1);
    let found;
    try {
      found = await search(field.value);
    } catch (error) {
      return;
    }
    if (mine !== asked || document.activeElement !== field) return;
    list.replaceChildren(...found.map(({ name, about }, i) => made("li",
      { id: `${list.id}-${i}`, role: "option", "aria-selected": "false", onpointerdown: (event) => { event.preventDefault(); close(); choose(name); } },
      made("span", {}, short(cellText(name), 80)), made("small", {}, short(cellText(about), 30)))));
    chosen = -1;
    list.hidden = !found.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    list.names = found.map(({ name }) => name);
  };
  const soon = later(open);
  field.addEventListener("input", soon);
  field.addEventListener("focus", open);
  field.addEventListener("blur", close);
  field.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step && list.hidden) open();
    else if (step) mark((chosen + step + items().length + (chosen < 0 && step < 0 ? 1 : 0)) % items().length);
    else if (event.key === "Escape") close();
    else if (event.key === "Enter" && chosen >= 0) {
      const name = list.names[chosen];
      close();
      choose(name);
    } else return;
    event.preventDefault();
  });
  return close;
}

/* ---- nodes to begin with ---- */

async function showExamples() {
  const still = wanted("node");
  try {
    if (!$("begin").childElementCount) {
      const { examples } = await ask("/api/examples", {});
      show("begin", ...examples.map(({ about, nodes }) => table(about[0].toUpperCase() + about.slice(1), ["node", "predicted"],
        nodes.map((one) => ({ cells: [nodeLink(one.id), { text: cellText(one.predicted === "|" ? "none" : one.predicted) }] })))));
    }
    if (still()) $("examples").hidden = !$("begin").childElementCount;
  } catch (error) {
    if (still()) say(error.message, true);
  }
}

/* ---- a node ---- */

async function explain(parameters) {
  const still = asking("explanation");
  try {
    const found = await ask("/api/explanation", { id: now.id, ...parameters });
    if (still()) showWhy(found);
  } catch (error) {
    if (still()) say(error.message, true);
  }
}

async function findFlips() {
  const still = asking("flips");
  try {
    const found = await ask("/api/flips", { id: now.id });
    if (still()) showFlips(found);
  } catch (error) {
    if (still()) say(error.message, true);
  }
}

async function addFeature(name) {
  const still = wanted("features"); // two may be added at once
  const shown = () => [...$("values").querySelectorAll("input, select")].find((field) => field.dataset.name === name);
  try {
    if (!shown()) {
      const { features } = await ask("/api/features", { prefix: name, limit: 1, id: now.id });
      if (!still()) return;
      if (!shown()) $("values").append(...input(features[0]));
    }
    $("more").value = "";
    shown().focus();
  } catch (error) {
    if (still()) say(error.message, true);
  }
}

async function load(id) {
  forget(...Object.keys(turns));
  const still = wanted("node");
  say("Looking it up \u2026");
  document.documentElement.dataset.ready = "false";
  try {
    const found = await ask("/api/node", { id });
    if (!still()) return;
    forget("change", "explanation", "flips", "features"); // what was asked of the node before meanwhile
    now = found;
    $("examples").hidden = true;
    $("wanted").value = found.id;
    document.title = `${short(found.id)} \u00b7 Hoplite`;
    say("");
    for (const part of ["parts", "drawing", "drawing-note", "why-sum", "flips-found"]) show(part);
    $("answer").hidden = false;
    showPrediction(found);
    showNeighbours(found.neighbours);
    if (!unchangeable) showValues(found.features.top);
    const hidden = found.features.total - found.features.top.length;
    $("add").hidden = Boolean(unchangeable) || hidden <= 0;
    $("reset").hidden = Boolean(unchangeable);
    $("change-note").textContent = unchangeable || (hidden > 0
      ? `${found.features.top.length} of its ${found.features.total.toLocaleString("en")} values; all else stays as it is.`
      : "All else stays as it is, the neighbours too.");
    if (explained) {
      drawNearest(found);
      show("parts", made("p", { class: "quiet" }, explained));
    } else {
      await explain({});
      if (still() && task === "classification") await findFlips();
    }
  } catch (error) {
    if (still()) {
      $("answer").hidden = true; // it would be the node before, under another address
      say(error.message, true);
      await showExamples();
    }
  }
  if (still()) document.documentElement.dataset.ready = "true";
}

function visit(id) {
  history.pushState(null, "", linkTo(id));
  load(id);
  window.scrollTo({ top: 0 });
}

function start() {
  $("contrast").hidden = Boolean(explained);
  $("flips").hidden = Boolean(explained) || task !== "classification";
  const close = combobox($("wanted"), $("suggested"),
    async (prefix) => (await ask("/api/nodes", { prefix, limit: 30 })).nodes.map((node) => ({ name: node.id, about: node.predicted })), visit);
  combobox($("more"), $("features"),
    async (prefix) => {
      const still = wanted("features");
      const { features } = await ask("/api/features", { prefix, limit: 30, id: now.id });
      return still() ? features.map((one) => ({ name: one.name, about: one.value })) : [];
    },
    addFeature);
  $("look-up").addEventListener("submit", (event) => {
    event.preventDefault();
    close();
    if ($("wanted").value) visit($("wanted").value);
    else {
      history.pushState(null, "", location.pathname);
      arrive();
    }
  });
  $("contrast").addEventListener("submit", (event) => event.preventDefault());
  $("class").addEventListener("change", () => explain({ class: $("class").value }));
  $("against").addEventListener("change", () => explain({ class: $("class").value, against: $("against").value }));
  $("reset").addEventListener("click", () => {
    forget("change", "features");
    showValues(now.features.top);
    say("");
  });
  window.addEventListener("popstate", arrive);
  arrive();
}

async function arrive() {
  const id = new URLSearchParams(location.search).get("id");
  if (id === null) {
    forget(...Object.keys(turns));
    const still = wanted("node");
    $("answer").hidden = true;
    $("wanted").value = "";
    document.title = TITLE;
    say("");
    await showExamples();
    if (still()) document.documentElement.dataset.ready = "true";
  } else load(id);
}

start();
