"use strict";
// Shows /api/snapshot each second. Rates are the differences of two snapshots.

const PERIOD = 1000;
const KEPT = 300; // Points of a chart: five minutes.
const $ = (id) => document.getElementById(id);
const histories = new Map(); // By row: {rate, drops, backlog}, the newest last.
const folded = new Set();
let before = null;
let chosen = null;
let shown = [];

/// Returns the rows of a snapshot: each device, then its tree.
function rows(snapshot) {
  const all = [];
  for (const dev of snapshot.devices) {
    const dropped = Object.values(dev.drops).reduce((sum, n) => sum + n, 0);
    const of = (name) => dev.counters[name] ?? 0;
    all.push({
      key: dev.name, dev, depth: 0, label: dev.name, handle: "",
      bytes: of("tx_bytes"), packets: of("tx_packets"), drops: dropped, overlimits: 0, backlog: null, qlen: of("queued"),
    });
    for (const node of dev.tree) {
      const key = [dev.name, node.class, node.kind, node.handle, node.parent].join(" ");
      const label = node.class ? `class ${node.kind}` : node.kind;
      all.push({ ...node, key, dev, node, depth: node.depth + 1, label });
    }
  }
  all.forEach((row, at) => { row.folds = at + 1 < all.length && all[at + 1].depth > row.depth; });
  return all;
}

/// Returns what a row did in a second; null if it is new, or its counters began again.
function rates(row, old, seconds) {
  const last = old?.get(row.key);
  if (!last || row.bytes < last.bytes || row.packets < last.packets || row.drops < last.drops) return null;
  const per = (name) => (row[name] - last[name]) / seconds;
  return { rate: 8 * per("bytes"), packets: per("packets"), drops: per("drops"), overlimits: per("overlimits") };
}

/// Returns a number with three digits and a unit's prefix, as tc prints rates.
function scaled(value, unit) {
  if (value === null) return "–";
  const at = value < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3 + 1e-9));
  const number = value / 1000 ** at;
  const digits = at === 0 && Number.isInteger(value) ? 0 : number < 10 ? 2 : number < 100 ? 1 : 0;
  return number.toFixed(digits) + ["", "K", "M", "G", "T"][at] + unit;
}

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

function svg(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

/// Returns a path through points; it begins again after a gap.
function path(points, x, y) {
  let pen = "M";
  return points.map((value, at) => {
    if (value === null) { pen = "M"; return ""; }
    const step = `${pen}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function sparkline(points) {
  const [width, height] = [120, 18];
  const last = points.slice(-60);
  const most = Math.max(1, ...last.map((value) => value ?? 0));
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
  const x = (at) => (at + 60 - last.length) * width / 59;
  drawing.append(svg("path", { class: "rate", d: path(last, x, (value) => height - 1 - value / most * (height - 2)) }));
  return drawing;
}

/// Returns a chart with axes: five minutes, and values in a unit.
function chart(title, points, unit, kind) {
  const [width, height, left, foot] = [420, 150, 62, 20];
  const most = Math.max(1, ...points.map((value) => value ?? 0)) * 1.05;
  const drawing = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": title });
  const x = (at) => left + (at + KEPT - points.length) * (width - left - 8) / (KEPT - 1);
  const y = (value) => height - foot - value / most * (height - foot - 8);
  for (const part of [0, 0.5, 1]) {
    const value = part * most;
    drawing.append(svg("line", { class: "grid", x1: left, x2: width - 8, y1: y(value), y2: y(value) }));
    drawing.append(svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, scaled(value, unit)));
  }
  for (const minutes of [5, 4, 3, 2, 1, 0]) {
    const at = points.length - 1 - minutes * 60;
    const anchor = minutes === 0 ? "end" : minutes === 5 ? "start" : "middle";
    drawing.append(svg("text", { x: x(at), y: height - 5, "text-anchor": anchor }, minutes ? `-${minutes} min` : "now"));
  }
  drawing.append(svg("path", { class: kind, d: path(points, x, y) }));
  const figure = element("figure");
  figure.style.margin = "0";
  figure.append(element("h3", title), drawing);
  return figure;
}

/// Returns a table of names and numbers under a title; null without any.
function table(title, pairs) {
  if (pairs.length === 0) return null;
  const block = element("div");
  const made = element("table");
  for (const [name, value] of pairs) {
    const line = made.insertRow();
    line.append(element("td", name), element("td", typeof value === "number" ? value.toLocaleString("en") : value, "number"));
  }
  block.append(element("h3", title), made);
  return block;
}

/// Returns a time that a part of the sampled times does not exceed: the end of its bucket, a power of two.
function quantile(times, part) {
  const all = times.reduce((sum, [, n]) => sum + n, 0);
  let rest = all * part;
  for (const [min, n] of times) {
    rest -= n;
    if (rest <= 0) return 2 * min;
  }
  return null;
}

function time(nanoseconds) {
  if (nanoseconds === null) return "–";
  const units = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
  const [size, unit] = units.find(([least]) => nanoseconds >= least) ?? [1, "ns"];
  return `≤ ${(nanoseconds / size).toPrecision(3)} ${unit}`;
}

function describe(row) {
  const history = histories.get(row.key);
  $("name").textContent = row.node ? `${row.label} ${row.handle} of ${row.dev.name}` : `device ${row.dev.name}`;
  $("charts").replaceChildren(
    chart("Rate", history.rate, "bit", "rate"),
    chart("Drops per second", history.drops, "", "drops"),
    chart("Packets that wait", history.backlog, "", "backlog"),
  );
  const { dev } = row;
  const quantiles = (times) => [["p50", time(quantile(times, 0.5))], ["p99", time(quantile(times, 0.99))]];
  const tables = row.node
    ? [
        table("Counters", ["packets", "bytes", "drops", "overlimits", "requeues", "backlog", "qlen"].map((name) => [name, row[name]])),
        table("Of its kind", Object.entries(row.more)),
      ]
    : [
        table("Drops by reason", Object.entries(dev.drops)),
        dev.to_driver.length ? table("From xmit to the driver, since the start", quantiles(dev.to_driver)) : null,
        dev.to_completion.length ? table("From xmit to completion, since the start", quantiles(dev.to_completion)) : null,
        table("Device", Object.entries(dev.counters)),
        ...Object.entries(dev.txqs).slice(0, 16).map(([txq, own]) => table(`txq ${txq}`, Object.entries(own))),
        ...dev.senders.slice(0, 16).map((sender) => table(`sender ${sender.name}`, [
          ...Object.entries(sender.counters), ...Object.entries(sender.drops).map(([why, n]) => [`drop_${why}`, n])])),
      ];
  $("tables").replaceChildren(...tables.filter((made) => made !== null));
  $("detail").hidden = false;
}

function draw() {
  const words = $("filter").value.toLowerCase();
  const lines = [];
  let hidden = null; // The depth of a folded row, whose rows below are left out.
  for (const row of shown) {
    if (hidden !== null && row.depth > hidden) continue;
    hidden = folded.has(row.key) && !words ? row.depth : null;
    if (words && !`${row.dev.name} ${row.label} ${row.handle}`.toLowerCase().includes(words)) continue;
    const line = element("tr");
    line.tabIndex = 0;
    line.dataset.key = row.key;
    if (!row.node) line.classList.add("device");
    if (row.key === chosen) line.classList.add("chosen");
    const name = element("td");
    name.style.paddingLeft = `${0.6 + 1.1 * row.depth}rem`;
    name.append(element("span", row.folds ? (folded.has(row.key) ? "▸" : "▾") : "", "fold"), row.label, element("span", row.handle, "handle"));
    const now = row.now;
    const cell = (value, unit) => element("td", scaled(value ?? null, unit), "number");
    const drops = cell(now?.drops, "");
    if (now?.drops > 0) drops.classList.add("some");
    const waits = row.backlog === null ? `${scaled(row.qlen, "")}p` : `${scaled(row.backlog, "b")} ${scaled(row.qlen, "")}p`;
    const drawing = element("td");
    drawing.append(sparkline(histories.get(row.key).rate));
    line.append(name, cell(now?.rate, "bit"), cell(now?.packets, ""), drops, cell(row.node ? now?.overlimits : null, ""), element("td", waits, "number"), drawing);
    lines.push(line);
    if (lines.length === 500) {
      const more = element("tr");
      more.append(element("td", "further queues: use the filter"));
      lines.push(more);
      break;
    }
  }
  const focus = document.activeElement?.dataset?.key;
  $("queues").replaceChildren(...lines);
  if (focus) lines.find((line) => line.dataset.key === focus)?.focus();
  const row = shown.find((found) => found.key === chosen);
  if (row) describe(row); else $("detail").hidden = true;
}

function take(snapshot) {
  const { at } = snapshot;
  if (before?.at === at) return;
  const seconds = before ? at - before.at : 1;
  shown = rows(snapshot);
  // Another process counts from zero: nothing is compared over its start.
  const same = before?.pid === snapshot.program.pid && seconds > 0;
  for (const row of shown) {
    row.now = same ? rates(row, before.rows, seconds) : null;
    const history = histories.get(row.key) ?? { rate: [], drops: [], backlog: [] };
    histories.set(row.key, history);
    history.rate.push(row.now?.rate ?? null);
    history.drops.push(row.now?.drops ?? null);
    history.backlog.push(row.qlen);
    for (const points of Object.values(history)) if (points.length > KEPT) points.shift();
  }
  before = { at, pid: snapshot.program.pid, rows: new Map(shown.map((row) => [row.key, row])) };
  for (const key of histories.keys()) if (!before.rows.has(key)) histories.delete(key);
  const { program, pid, version } = snapshot.program;
  $("program").textContent = `${program} (${pid})`;
  document.title = `${program} – txq`;
  $("state").textContent = `release ${version}, ${snapshot.devices.length} device${snapshot.devices.length === 1 ? "" : "s"}`;
  $("state").classList.remove("lost");
}

async function look() {
  if (document.hidden || $("pause").getAttribute("aria-pressed") === "true") return;
  try {
    const answer = await fetch("api/snapshot" + location.search, { signal: AbortSignal.timeout(15000) });
    if (!answer.ok) throw new Error((await answer.text()).trim());
    take(await answer.json());
    draw();
  } catch (error) {
    $("state").textContent = error.message;
    $("state").classList.add("lost");
  }
}

async function watch() {
  for (;;) {
    const start = performance.now();
    await look();
    await new Promise((done) => setTimeout(done, Math.max(100, PERIOD - (performance.now() - start))));
  }
}

$("queues").addEventListener("click", (event) => {
  const key = event.target.closest("tr")?.dataset.key;
  if (!key) return;
  if (event.target.classList.contains("fold")) {
    if (!folded.delete(key)) folded.add(key);
  } else {
    chosen = chosen === key ? null : key;
  }
  draw();
});
$("queues").addEventListener("keydown", (event) => {
  const key = event.target.dataset.key;
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (step) event.target[step]?.focus();
  else if (event.key === "Enter") { chosen = chosen === key ? null : key; draw(); }
  else if (event.key === "ArrowLeft" && key) { folded.add(key); draw(); }
  else if (event.key === "ArrowRight" && key) { folded.delete(key); draw(); }
  else return;
  event.preventDefault();
});
$("filter").addEventListener("input", draw);
$("pause").addEventListener("click", () => {
  const paused = $("pause").getAttribute("aria-pressed") === "true";
  $("pause").setAttribute("aria-pressed", String(!paused));
  $("pause").textContent = paused ? "Pause" : "Resume";
});
watch();
