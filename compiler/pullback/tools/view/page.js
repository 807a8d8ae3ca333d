"use strict";
// Shows `data`: rows of source and of IR, of which only those in view are in the document, and
// marks what a click selects. Numbers of ops and values go over all stages.

const data = JSON.parse(document.getElementById("data").textContent);
const ROW = 20; // pixels, as in the style
const MOST = 60; // links in a list

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
};
const plainText = (html) => html.replace(/<[^>]*>/g, "").replace(/&lt;/g, "<")
  .replace(/&gt;/g, ">").replace(/&quot;/g, '"').replace(/&#39;/g, "'").replace(/&amp;/g, "&");
const size = (n, units) => {
  let unit = 0;
  while (n >= 1000 && unit < units.length - 1) [n, unit] = [n / 1000, unit + 1];
  return `${unit ? n.toPrecision(3) : n}${units[unit]}`;
};
const bytes = (n) => (n === null ? "?" : size(n, [" B", " kB", " MB", " GB", " TB"]));
const count = (n) => size(n, ["", " k", " M", " G", " T"]);

// ---------------------------------------------------------------- what there is

const ops = data.ops.map((each, id) => {
  const [name, func, start, end, takes, makes, origins, places, flops, moved, runs, callee] = each;
  return { id, name: data.names[name], func, start, end, takes, makes, origins, places,
    flops, bytes: moved, runs, callee, heirs: [], calledBy: [], stage: 0 };
});
const values = []; // name, the op that makes it, the ops that take it
data.stages.forEach((stage, number) => {
  stage.first = values.length;
  for (const name of stage.values) {
    values.push({ name, maker: data.makers[values.length], takers: [], stage: number });
  }
  for (const owner of stage.owners) if (owner >= 0) ops[owner].stage = number;
});
const carriers = new Set(data.carriers);
for (const op of ops) {
  if (op.makes.length) op.stage = values[op.makes[0]].stage;
  else if (op.takes.length) op.stage = values[op.takes[0]].stage;
  for (const v of op.takes) values[v].takers.push(op.id);
  for (const origin of op.origins) ops[origin].heirs.push(op.id);
  if (op.callee >= 0) ops[op.callee].calledBy.push(op.id);
}
const inFunction = new Map(); // function -> its ops
const atLine = new Map(); // "file:line" -> the ops that come from it
const lineKey = (file, line) => `${file}:${line}`;
const lineOf = (place) => lineKey(data.places[place][0], data.places[place][1]);
for (const op of ops) {
  if (!inFunction.has(op.func)) inFunction.set(op.func, []);
  inFunction.get(op.func).push(op.id);
  for (const key of new Set(op.places.map(lineOf))) {
    if (!atLine.has(key)) atLine.set(key, []);
    atLine.get(key).push(op.id);
  }
}
const functionName = new Map();
for (const [id] of data.functions) {
  const stage = data.stages[ops[id].stage];
  const found = /class="nf">(@[^<]*)</.exec(stage.rows[ops[id].start]);
  functionName.set(id, found ? plainText(found[1]) : "@?");
}
const ruleOf = new Map(); // op -> the rule whose call it is
data.rules.forEach((rule, number) => rule.calls.forEach((call) => ruleOf.set(call, number)));
const definedAt = new Map(); // "file:line" of a `def` -> the rule that it is of
data.rules.forEach((rule, number) =>
  rule.lines.forEach(([file, line]) => definedAt.set(lineKey(file, line), number)));
const opText = (op) => {
  const made = op.makes.length && op.id !== op.func ? `${values[op.makes[0]].name} = ` : "";
  return `${made}${op.name} in ${functionName.get(op.func)}`;
};

/** Add to some ops all that `next` leads to from them. */
const reached = (seeds, next) => {
  const found = new Set(seeds);
  for (const id of found) for (const other of next(ops[id])) found.add(other);
  return found;
};
const ancestors = (ids) => reached(ids, (op) => op.origins);
const heirs = (ids) => reached(ids, (op) => op.heirs);

// ---------------------------------------------------------------- selections

const selection = { title: "", own: new Set(), from: new Set(), of: new Set(), value: -1,
  lines: new Map() };

/** Select ops: what is in `own` is in neither of the others, and lines go with their ops. */
const select = (title, own, from, of, value = -1, ownLines = []) => {
  const lines = new Map();
  for (const id of [...from, ...own]) {
    for (const place of ops[id].places) lines.set(lineOf(place), "from");
  }
  for (const key of ownLines) lines.set(key, "own");
  for (const id of own) { from.delete(id); of.delete(id); }
  for (const id of from) of.delete(id);
  Object.assign(selection, { title, own, from, of, value, lines });
  for (const pane of panes) pane.showMarks();
  showTab("selection");
};
const union = (...sets) => new Set(sets.flatMap((each) => [...each]));
const makersOf = (op) => op.takes.map((v) => values[v].maker);
const takersOf = (op) => op.makes.flatMap((v) => values[v].takers);

const selectOp = (id) => {
  const op = ops[id];
  const isFunction = op.id === op.func;
  const from = union(ancestors([id]), isFunction ? op.calledBy : makersOf(op));
  const called = op.callee >= 0 ? [op.callee] : [];
  const of = union(heirs([id]), isFunction ? [] : takersOf(op), called);
  select(opText(op), new Set([id]), from, of);
};
const selectValue = (v) => {
  const { name, maker, takers } = values[v];
  const what = carriers.has(v) ? "carries tangents or cotangents, " : "";
  const from = union(ancestors([maker]), makersOf(ops[maker]));
  const of = union(takers, heirs([maker]));
  select(`${name}: ${what}made by ${opText(ops[maker])}`, new Set([maker]), from, of, v);
};
const selectLine = (file, line) => {
  const key = lineKey(file, line);
  if (definedAt.has(key)) return selectRule(definedAt.get(key), [key]);
  const of = heirs(atLine.get(key) || []);
  select(`${shortest(file)}:${line}`, new Set(), new Set(), of, -1, [key]);
};
const selectRule = (number, lines = []) => {
  const rule = data.rules[number];
  const isPlainCall = (op) => op.name === "func.call" && op.callee >= 0;
  const own = reached(Object.values(rule.functions).flatMap((f) => inFunction.get(f)),
    (op) => isPlainCall(op) ? inFunction.get(op.callee) : []);
  const of = heirs([...own, ...rule.calls]);
  const names = Object.keys(rule.functions).join(", ") || "no rule";
  select(`rule of @${rule.name}: ${names}`, own, new Set(rule.calls), of, -1, lines);
};
const clearSelection = () => select("", new Set(), new Set(), new Set());

// ---------------------------------------------------------------- panes

/** A list of rows, of which those in view are in the document. */
class Pane {
  constructor(name, title, about) {
    this.name = name;
    this.visible = []; // what each row shows: made by `rebuild`
    this.cursor = 0;
    this.found = -1;
    this.part = element("div", { class: "part", role: "presentation" });
    this.all = element("div", { class: "all", role: "presentation" }, this.part);
    this.rows = element("div", { class: "rows", tabindex: "0", role: "tree", id: `rows-${name}`,
      "aria-label": title, onscroll: () => this.draw(), onkeydown: (event) => this.onKey(event),
      onclick: (event) => this.onClick(event) }, this.all);
    this.section = element("section", { class: "pane", id: `pane-${name}` },
      element("h2", {}, title, " ", element("small", {}, about)), this.rows);
  }

  resize() {
    this.all.style.height = `${this.visible.length * ROW}px`;
    this.drawn = null;
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.rows.scrollTop / ROW) - 20);
    const last = Math.min(this.visible.length,
      Math.ceil((this.rows.scrollTop + this.rows.clientHeight) / ROW) + 20);
    if (this.drawn && this.drawn[0] === first && this.drawn[1] === last) return;
    this.drawn = [first, last];
    const html = [];
    for (let i = first; i < last; i++) html.push(this.rowHtml(i));
    this.part.innerHTML = html.join("");
    this.part.style.transform = `translateY(${first * ROW}px)`;
    this.all.style.width = `${this.part.offsetWidth}px`;
    this.decorate();
  }

  redraw() {
    this.drawn = null;
    this.draw();
  }

  decorate() {}

  rowHtml(i) {
    const { mark, classes, code, fold, level } = this.describe(this.visible[i]);
    const signs = { own: "●", from: "◂", of: "▸" };
    const all = ["row", mark, classes, i === this.cursor ? "cursor" : "",
      this.visible[i].row === this.found ? "found" : ""].filter(Boolean).join(" ");
    const expanded = fold === null ? "" : ` aria-expanded="${fold}"`;
    const triangle = fold === null ? " " : fold ? "▾" : "▸";
    const selected = mark === "own" ? ' aria-selected="true"' : "";
    return `<div class="${all}" role="treeitem" id="${this.name}-${i}" data-i="${i}"` +
      ` data-row="${this.visible[i].row}" aria-level="${level}" aria-posinset="${i + 1}"` +
      ` aria-setsize="${this.visible.length}"${expanded}${selected}>` +
      `<span class="sign">${signs[mark] || ""}</span><span class="fold">${triangle}</span>` +
      `${code}</div>`;
  }

  onClick(event) {
    const row = event.target.closest(".row");
    if (!row) return;
    this.moveTo(Number(row.dataset.i), false);
    if (event.target.classList.contains("fold") && row.hasAttribute("aria-expanded")) {
      this.toggle(this.visible[this.cursor]);
    } else this.activate(this.visible[this.cursor], event.target);
  }

  onKey(event) {
    const page = Math.max(1, Math.floor(this.rows.clientHeight / ROW) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page,
      Home: -Infinity, End: Infinity };
    const fold = this.visible.length ? this.describe(this.visible[this.cursor]).fold : null;
    if (event.key in steps) this.moveTo(this.cursor + steps[event.key]);
    else if (event.key === "Enter" || event.key === " ") {
      this.activate(this.visible[this.cursor], null);
    } else if ((event.key === "ArrowRight" && fold === false) ||
        (event.key === "ArrowLeft" && fold === true)) this.toggle(this.visible[this.cursor]);
    else return;
    event.preventDefault();
  }

  moveTo(i, scroll = true) {
    this.cursor = Math.max(0, Math.min(this.visible.length - 1, i));
    if (scroll) this.scrollTo(this.cursor, false);
    this.redraw();
    this.rows.setAttribute("aria-activedescendant", `${this.name}-${this.cursor}`);
  }

  scrollTo(i, centre) {
    const top = i * ROW, height = this.rows.clientHeight;
    if (!centre && top < this.rows.scrollTop) this.rows.scrollTop = top;
    else if (!centre && top + ROW > this.rows.scrollTop + height) {
      this.rows.scrollTop = top + ROW - height;
    } else if (centre && (top < this.rows.scrollTop || top + ROW > this.rows.scrollTop + height)) {
      this.rows.scrollTop = Math.max(0, top - height / 3);
    }
  }

  /** Show a row, opening what hides it. */
  reveal(row) {
    this.open(row);
    const i = this.visible.findIndex((each) => each.row === row);
    if (i < 0) return;
    this.scrollTo(i, true);
    this.cursor = i;
    this.redraw();
  }

  text(row) { return plainText(this.html(row)); }
}

/** A module: functions, loops and calls fold. */
class ModulePane extends Pane {
  constructor(number) {
    const stage = data.stages[number];
    const own = ops.filter((op) => op.stage === number && op.id !== op.func);
    super(stage.name, stage.title, `${own.length.toLocaleString("en")} ops`);
    this.number = number;
    this.stage = stage;
    this.heads = new Map(); // row -> the outermost op that starts there
    this.toggled = new Set(); // folds that are not as they are at first
    for (const op of ops) {
      if (op.stage === number && op.start >= 0 && !this.heads.has(op.start)) {
        this.heads.set(op.start, op);
      }
    }
    this.marks = new Map();
    this.rebuild();
  }

  html(row) { return this.stage.rows[row]; }
  get length() { return this.stage.rows.length; }

  /** Whether what starts in this row is open: functions but @main and calls are not at first. */
  isOpen(entry, op) {
    const isClosed = op.end === op.start ||
      (op.id === op.func && functionName.get(op.id) !== "@main");
    return isClosed === this.toggled.has(entry.key);
  }

  rebuild() {
    this.visible = [];
    this.emit(0, this.stage.rows.length - 1, 0, "");
    this.cursor = Math.min(this.cursor, this.visible.length - 1);
    if (this.rows.isConnected) this.resize();
  }

  emit(row, last, pad, path) {
    while (row <= last) {
      const op = this.heads.get(row);
      const entry = { row, pad, key: `${path}${row}` };
      this.visible.push(entry);
      if (op && op.end > op.start && !this.isOpen(entry, op)) row = op.end;
      else if (op && this.isCall(op) && pad < 40 && this.isOpen(entry, op)) {
        const callee = ops[op.callee];
        this.emit(callee.start + 1, callee.end - 1, pad + 2, `${entry.key}/`);
      }
      row++;
    }
  }

  isCall(op) { return op.callee >= 0 && ops[op.callee].end > ops[op.callee].start; }

  describe(entry) {
    const op = this.heads.get(entry.row);
    const folds = op && (op.end > op.start || this.isCall(op));
    const open = folds ? this.isOpen(entry, op) : null;
    const indent = "  ".repeat(entry.pad);
    let code = `${indent}${this.html(entry.row)}`;
    if (op && op.end > op.start && !open) {
      const inside = this.markedIn(op);
      const marked = inside ? `, ${inside} marked` : "";
      code += `<span class="count"> … ${op.end - op.start - 1} rows${marked}</span>`;
    }
    const level = 1 + entry.pad + Math.floor(/^ */.exec(this.html(entry.row))[0].length / 2);
    return { mark: this.marks.get(entry.row) || "", classes: "", code, fold: open, level };
  }

  markedIn(op) {
    let inside = 0;
    for (const row of this.marks.keys()) if (row > op.start && row <= op.end) inside++;
    return inside;
  }

  /** Colour the names of values that carry tangents, and of the value that is selected. */
  decorate() {
    for (const name of this.part.querySelectorAll(".nv")) {
      const v = this.valueAt(Number(name.closest(".row").dataset.row), name.textContent);
      if (carriers.has(v)) name.classList.add("carries");
      if (v >= 0 && v === selection.value) name.classList.add("value-own");
    }
  }

  /** The value that a name in a row is; -1 if none. `%3` alone names the results `%3#0`, `%3#1`. */
  valueAt(row, name) {
    let owner = this.stage.owners[row];
    if (owner < 0) return -1;
    const op = ops[owner];
    for (const v of [...op.takes, ...op.makes]) if (values[v].name === name) return v;
    for (const v of op.makes) if (values[v].name === `${name}#0`) return v;
    return -1;
  }

  toggle(entry) {
    if (this.toggled.has(entry.key)) this.toggled.delete(entry.key);
    else this.toggled.add(entry.key);
    this.rebuild();
  }

  open(row) {
    let changed = false;
    for (const [start, op] of this.heads) {
      if (start < row && row <= op.end && !this.isOpen({ key: `${start}` }, op)) {
        this.toggled.has(`${start}`) ? this.toggled.delete(`${start}`)
          : this.toggled.add(`${start}`);
        changed = true;
      }
    }
    if (changed) this.rebuild();
  }

  activate(entry, target) {
    const owner = this.stage.owners[entry.row];
    const kind = target ? target.className.split(" ")[0] : "";
    if (kind === "nv") {
      const v = this.valueAt(entry.row, target.textContent);
      if (v >= 0) return selectValue(v);
    }
    if (kind === "nf") {
      for (const [id, name] of functionName) {
        if (ops[id].stage === this.number && name === target.textContent) {
          selectOp(id);
          return this.reveal(ops[id].start);
        }
      }
    }
    if (kind === "nd" && ruleOf.has(owner)) return selectRule(ruleOf.get(owner));
    if (owner >= 0) selectOp(owner);
  }

  showMarks() {
    this.marks = new Map();
    for (const mark of ["of", "from", "own"]) { // the last one stays
      for (const id of selection[mark]) {
        if (ops[id].stage === this.number) this.marks.set(ops[id].start, mark);
      }
    }
    const rows = [...this.marks.keys()].sort((a, b) => a - b);
    const shown = new Set(this.visible.map((entry) => entry.row));
    const own = rows.find((row) => this.marks.get(row) === "own");
    const first = own ?? rows.find((row) => shown.has(row)) ?? rows[0];
    if (first !== undefined && !this.isInView(first)) this.reveal(first);
    this.redraw();
  }

  isInView(row) {
    const top = this.rows.scrollTop, bottom = top + this.rows.clientHeight;
    return this.visible.some((entry, i) => entry.row === row && i * ROW >= top &&
      (i + 1) * ROW <= bottom);
  }
}

/** The user's files, with the figures of each line. */
class SourcePane extends Pane {
  constructor() {
    super("source", "source", "ops, flops of the program; bytes stored");
    this.lines = []; // what rows show: a file, a remark, or a line
    this.figures = new Map(data.lines.map(([file, line, ...all]) => [lineKey(file, line), all]));
    this.stored = new Map();
    for (const [, amount, , , why, place] of data.stored ? data.stored.values : []) {
      if (place && !/^(an argument|a result)/.test(why)) {
        const key = lineKey(place[0], place[1]);
        this.stored.set(key, (this.stored.get(key) || 0) + amount);
      }
    }
    this.closed = new Set();
    for (const file of data.files) this.addFile(file);
    if (!this.lines.length) this.lines.push({ kind: "remark", text: "no op has a line of source" });
    this.rebuild();
  }

  addFile(file) {
    const head = this.lines.length;
    this.lines.push({ kind: "file", text: file.path, head });
    if (file.installed) this.closed.add(head);
    if (file.remark) this.lines.push({ kind: "remark", text: file.remark, head });
    if (file.rows) {
      file.rows.forEach((code, i) =>
        this.lines.push({ kind: "line", code, file: file.path, line: i + 1, head }));
      return;
    }
    const known = new Map();
    for (const [path, line, name] of data.places) if (path === file.path) known.set(line, name);
    for (const line of [...known.keys()].sort((a, b) => a - b)) {
      this.lines.push({ kind: "line", plain: known.get(line) ? `in ${known.get(line)}` : "",
        file: file.path, line, head });
    }
  }

  get length() { return this.lines.length; }

  html(row) {
    const { code, plain, text } = this.lines[row];
    return code ?? escaped(plain ?? text);
  }

  rebuild() {
    this.visible = [];
    this.lines.forEach((line, row) => {
      if (line.kind === "file" || !this.closed.has(line.head)) this.visible.push({ row });
    });
    if (this.rows.isConnected) this.resize();
  }

  describe({ row }) {
    const line = this.lines[row];
    if (line.kind !== "line") {
      const fold = line.kind === "file" ? !this.closed.has(line.head) : null;
      return { mark: "", classes: line.kind, code: this.html(row), fold, level: 1 };
    }
    const key = lineKey(line.file, line.line);
    const all = this.figures.get(key);
    const figures = all ? [String(all[0][0] || ""), all[0][1] ? count(all[0][1]) : ""] : ["", ""];
    const stored = this.stored.get(key);
    const code = `<span class="number">${line.line}</span>` +
      figures.map((each) => `<span class="figure">${each}</span>`).join("") +
      `<span class="figure stored">${stored ? bytes(stored) : ""}</span>` +
      `<span class="code">${this.html(row)}</span>`;
    return { mark: selection.lines.get(key) || "", classes: "", code, fold: null, level: 2 };
  }

  toggle({ row }) {
    const { head } = this.lines[row];
    this.closed.has(head) ? this.closed.delete(head) : this.closed.add(head);
    this.rebuild();
  }

  open(row) {
    if (this.closed.delete(this.lines[row].head)) this.rebuild();
  }

  activate({ row }) {
    const { kind, file, line } = this.lines[row];
    if (kind === "line") selectLine(file, line);
    else if (kind === "file") this.toggle({ row });
  }

  rowOf(file, line) {
    return this.lines.findIndex((each) => each.file === file && each.line === line);
  }

  showMarks() {
    const marked = this.visible.filter(({ row }) => this.describe({ row }).mark);
    if (marked.length) {
      const i = this.visible.indexOf(marked[0]);
      this.scrollTo(i, true);
    }
    this.redraw();
  }
}

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

// ---------------------------------------------------------------- details

const goTo = (id) => {
  selectOp(id);
  panes[1 + ops[id].stage].reveal(ops[id].start);
};
const goToLine = (file, line) => {
  selectLine(file, line);
  const row = panes[0].rowOf(file, line);
  if (row >= 0) panes[0].reveal(row);
};
const link = (text, onclick) => element("button", { type: "button", onclick }, text);
const lineLink = (file, line) => link(`${shortest(file)}:${line}`, () => goToLine(file, line));
const shortest = (file) => file.split("/").slice(-2).join("/");

const opList = (title, ids) => {
  const list = element("ul");
  const sorted = [...ids].sort((a, b) => a - b);
  for (const id of sorted.slice(0, MOST)) {
    const stage = data.stages[ops[id].stage].name;
    list.append(element("li", {}, link(`${stage}: ${opText(ops[id])}`, () => goTo(id))));
  }
  if (sorted.length > MOST) list.append(element("li", {}, `and ${sorted.length - MOST} more`));
  return element("div", {}, element("h3", {}, `${title} (${sorted.length})`), list);
};

/** A table of texts and links; a column without a number in its first row is one of words. */
const table = (heads, rows) => {
  const kinds = heads.map((_, i) => {
    const cell = rows.length ? rows[0][i] : "";
    return { class: typeof cell !== "string" || !/^[\d.,?-]/.test(cell) ? "word" : "number" };
  });
  const body = element("tbody");
  for (const row of rows) {
    body.append(element("tr", {}, ...row.map((cell, i) => element("td", kinds[i], cell))));
  }
  const head = element("thead", {}, element("tr", {}, ...heads.map((each, i) =>
    element("th", { scope: "col", ...kinds[i] }, each))));
  return element("table", {}, head, body);
};

const tabs = {
  selection: () => {
    if (!selection.title) {
      return [element("p", {}, "Click a line, an op, a %value, a @function, or the name of a " +
        "derivative op for its rule. Keys: / searches, arrows move and fold, Enter selects, " +
        "Escape clears.")];
    }
    const found = [element("p", { id: "selected" }, selection.title)];
    if (selection.own.size === 1) {
      const op = ops[[...selection.own][0]];
      const lines = op.places.flatMap((place, i) =>
        [i ? ", called at " : "", lineLink(data.places[place][0], data.places[place][1])]);
      const runs = op.runs ? `runs ${count(op.runs)} ×` : "is not reached from @main";
      found.push(element("p", {}, `${runs}; each run: ${count(op.flops)} flops, ` +
        `${bytes(op.bytes)} read and written`));
      if (lines.length) found.push(element("p", {}, "line: ", ...lines));
    }
    found.push(element("div", { class: "columns" }, opList("comes from", selection.from),
      opList("comes of it", selection.of)));
    return found;
  },
  lines: () => {
    const heads = ["line", ...data.stages.flatMap(({ name }) =>
      [`${name}: ops`, "flops", "bytes"]), "stored"];
    return [table(heads, data.lines.map(([file, line, ...all]) => [lineLink(file, line),
      ...all.flatMap(([n, flops, moved]) => [String(n), count(flops), bytes(moved)]),
      bytes(panes[0].stored.get(lineKey(file, line)) || 0)]))];
  },
  functions: () => [table(["function", "stage", "ops", "flops", "bytes"],
    data.functions.map(([id, n, flops, moved]) => [link(functionName.get(id), () => goTo(id)),
      data.stages[ops[id].stage].name, String(n), count(flops), bytes(moved)]))],
  rules: () => data.rules.length === 0 ? [element("p", {}, "no function has a rule")] :
    [table(["function", "rules", "calls"], data.rules.map((rule, number) =>
      [link(`@${rule.name}`, () => selectRule(number)),
        Object.keys(rule.functions).join(", ") || "none in the module",
        String(rule.calls.length)]))],
  stored: () => data.stored === null
    ? [element("p", {}, "nothing is stored: there is no backward sweep")]
    : [element("p", {}, `stored for the backward sweep: ${bytes(data.stored.bytes)}`),
      table(["type", "bytes", "op", "line", "why"],
        data.stored.values.map(([type, amount, op, line, why, place]) => [type,
          /^(an argument|a result)/.test(why) ? "-" : bytes(amount), op,
          place ? lineLink(...place) : line, why]))],
};
if (data.pattern) {
  tabs.pattern = () => {
    const { text, scale, size: [height, width], cells } = data.pattern;
    const plot = element("div", { class: "pattern", role: "img", "aria-label": text });
    const squares = cells.map(([row, column]) => `M${column} ${row}h1v1h-1z`).join("");
    plot.innerHTML = `<svg viewBox="0 0 ${width} ${height}" width="${4 * width}" ` +
      `height="${4 * height}" shape-rendering="crispEdges"><path d="${squares}"/></svg>`;
    const remark = scale > 1 ? `; a square has a non-zero among ${scale} x ${scale} entries` : "";
    return [element("p", {}, text + remark), plot];
  };
}

const showTab = (name) => {
  for (const button of document.querySelectorAll("#tabs button")) {
    button.setAttribute("aria-selected", String(button.id === `tab-${name}`));
  }
  document.getElementById("panel").replaceChildren(...tabs[name]());
};

// ---------------------------------------------------------------- search

const search = { query: "", hits: [], at: -1 };

const find = (query) => {
  search.query = query;
  search.hits = [];
  search.at = -1;
  const wanted = query.toLowerCase();
  for (const pane of panes) {
    pane.found = -1;
    if (!wanted || pane.section.hidden) continue;
    pane.texts ??= Array.from({ length: pane.length }, (_, row) => pane.text(row).toLowerCase());
    pane.texts.forEach((text, row) => { if (text.includes(wanted)) search.hits.push([pane, row]); });
  }
};
const step = (by) => {
  const query = document.getElementById("query").value;
  if (query !== search.query) find(query);
  const { hits } = search;
  for (const pane of panes) pane.found = -1;
  if (hits.length) {
    search.at = search.at < 0 ? (by > 0 ? 0 : hits.length - 1)
      : (search.at + by + hits.length) % hits.length;
    const [pane, row] = hits[search.at];
    pane.found = row;
    pane.reveal(row);
  }
  for (const pane of panes) pane.redraw();
  const shown = hits.length ? `${search.at + 1} of ${hits.length}` : query ? "not found" : "";
  document.getElementById("hits").textContent = shown;
};

// ---------------------------------------------------------------- start

const panes = [new SourcePane(), ...data.stages.map((_, number) => new ModulePane(number))];
const main = document.getElementById("panes");
for (const pane of panes) {
  main.append(pane.section);
  const button = element("button", { type: "button", "aria-pressed": "true" }, pane.name);
  button.addEventListener("click", () => {
    pane.section.hidden = !pane.section.hidden;
    button.setAttribute("aria-pressed", String(!pane.section.hidden));
    for (const each of panes) each.redraw();
  });
  document.getElementById("shown").append(button);
}
for (const name of Object.keys(tabs)) {
  document.getElementById("tabs").append(element("button", { type: "button", role: "tab",
    id: `tab-${name}`, "aria-controls": "panel", onclick: () => showTab(name) }, name));
}
if (data.remark) {
  document.getElementById("remark").textContent = data.remark;
  document.getElementById("remark").hidden = false;
}
for (const pane of panes) pane.resize();
showTab("selection");
new ResizeObserver(() => { for (const pane of panes) pane.redraw(); }).observe(main);
document.getElementById("search").addEventListener("submit", (event) => {
  event.preventDefault();
  step(1);
});
document.getElementById("query").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.shiftKey) {
    event.preventDefault();
    step(-1);
  }
});
document.getElementById("previous").addEventListener("click", () => step(-1));
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.id === "query";
  if (event.key === "/" && !isTyping) {
    event.preventDefault();
    document.getElementById("query").focus();
  } else if (event.key === "Escape") clearSelection();
});
document.documentElement.dataset.ready = "true";
