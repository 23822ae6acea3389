"use strict";

// Shows the tables: a page of rows at a time, sorted, searched, and narrowed by links. Names are only ever text:
// no string is parsed as HTML.

const content = JSON.parse(document.getElementById("packed").textContent);
const PAGE_ROWS = 100;
const PRINTED_ROWS = 1000;
const FORMULA = new RegExp(content.formula, "gv");
const labels = new Map(Object.entries(content.people));
const whole = new Intl.NumberFormat("en");
const byName = new Intl.Collator("en", { numeric: true }).compare;
const folded = (text) => text.normalize("NFC").toLowerCase();

function element(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

function linkTo(target, key, text) {
  const link = element("a", element("bdi", text));
  link.href = `#${target}=${encodeURIComponent(key)}`;
  return link;
}

function personLink(key) {
  const link = linkTo("person", key, labels.get(key) ?? key);
  return element("div", link, ...(labels.has(key) ? [" ", element("small", element("bdi", key))] : []));
}

// What each style shows of a value, and the text by which it is searched and sorted.
const SHOWN = {
  text: (text) => [element("bdi", text)],
  small: (text) => [element("small", element("bdi", text))],
  host: (name) => [linkTo("host", name, name)],
  number: (number) => [whole.format(number)],
  percent: (share) => [`${(100 * share).toFixed(1)}%`],
  people: (keys) => keys.map(personLink),
};
const NUMBERS = new Set(["number", "percent"]);
const textOf = (style, value) =>
  style === "people" ? value.map((key) => `${labels.get(key) ?? ""} ${key}`).join(" ") : String(value ?? "");

// See `_compact` in reports/page_tables.py.
const unpacked = (values) => (values.of ? values.at.map((number) => values.of[number]) : values);

class TableView {
  constructor(place, { columns, fields, filters, rows }) {
    this.name = place.dataset.table;
    this.columns = columns;
    this.filters = filters;
    this.fields = Object.fromEntries(Object.entries(fields).map(([name, values]) => [name, unpacked(values)]));
    this.order = Array.from({ length: rows }, (_, row) => row);
    const [box, all, status, body, more] = ["input", ".all", "[role=status]", "tbody", ".more"].map((selector) =>
      place.querySelector(selector),
    );
    Object.assign(this, { box, all, status, body, more });
    this.heads = [...place.querySelectorAll("th")];
    this.names = this.heads.map((head) => head.textContent);
    this.heads.forEach((head, column) => {
      const button = element("button", "↕");
      button.ariaLabel = `Sort by ${this.names[column]}`;
      head.append(" ", button);
      head.addEventListener("click", () => this.sort(column));
    });
    box.addEventListener("input", () => this.search());
    more.addEventListener("click", () => this.draw(this.limit + PAGE_ROWS));
    place.querySelector(".download").addEventListener("click", () => this.download());
    place.hidden = false;
    this.narrow("");
  }

  sort(column) {
    const head = this.heads[column];
    const [style, field] = this.columns[column][0];
    const numeric = NUMBERS.has(style);
    const [once, again] = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
    const order = head.ariaSort === once ? again : once;
    const keys = this.fields[field].map((value) => (numeric ? value : textOf(style, value) || null));
    const compare = numeric ? (one, other) => one - other : byName;
    const sign = order === "ascending" ? 1 : -1;
    this.order.sort((one, other) => {
      const [left, right] = [keys[one] ?? null, keys[other] ?? null];
      if (left === null || right === null) {
        return (left === null) - (right === null); // what says nothing comes last
      }
      return sign * compare(left, right);
    });
    for (const each of this.heads) {
      each.ariaSort = each === head ? order : null;
      each.lastChild.textContent = each === head ? (sign > 0 ? "↑" : "↓") : "↕";
    }
    this.search();
  }

  narrow(words, holds = () => true) {
    this.words = words;
    this.holds = holds;
    this.all.hidden = !words;
    this.search();
  }

  search() {
    const words = folded(this.box.value).split(/\s+/).filter(Boolean);
    if (words.length) {
      const parts = this.columns.flat();
      this.texts ??= this.order.map((_, row) =>
        folded(parts.map(([style, field]) => textOf(style, this.fields[field][row])).join("\n")),
      );
    }
    this.found = this.order.filter((row) => this.holds(row) && words.every((word) => this.texts[row].includes(word)));
    const counted = `${whole.format(this.found.length)} of ${whole.format(this.order.length)}`;
    this.status.textContent = this.words ? `${this.words}: ${counted}` : words.length ? counted : "";
    this.draw(PAGE_ROWS);
  }

  draw(limit) {
    this.limit = limit;
    const rows = this.found.slice(0, this.limit);
    const cells = (row) => this.columns.map((parts, column) => this.cell(parts, row, column));
    this.body.replaceChildren(...rows.map((row) => element("tr", ...cells(row))));
    this.more.hidden = this.found.length <= this.limit;
    this.more.textContent = `Show more: these are ${whole.format(rows.length)} of ${whole.format(this.found.length)}`;
  }

  cell(parts, row, column) {
    const made = element("td");
    for (const [style, field] of parts) {
      const value = this.fields[field][row];
      made.append(...(value === null ? [] : SHOWN[style](value)), " ");
    }
    made.className = parts[0][0];
    return made;
  }

  // The rows found, for a spreadsheet: see `as_csv` in reports/exports.py.
  download() {
    const names = this.columns.flatMap(([, ...parts], column) => [
      this.names[column],
      ...parts.map(([, field]) => field.replaceAll("_", " ")),
    ]);
    const quoted = (cell) => `"${cell.replace(FORMULA, "$1'$2").replaceAll('"', '""')}"`;
    const cells = this.columns.flat();
    const rows = this.found.map((row) => cells.map(([style, field]) => textOf(style, this.fields[field][row])));
    const lines = [names, ...rows].map((cells) => cells.map(quoted).join(","));
    const link = element("a");
    link.href = URL.createObjectURL(new Blob(["\ufeff", lines.join("\r\n")], { type: "text/csv" }));
    link.download = `${this.name}.csv`;
    link.click();
    URL.revokeObjectURL(link.href);
  }
}

const views = new Map();
for (const place of document.querySelectorAll("[data-table]")) {
  views.set(place.dataset.table, new TableView(place, content.tables[place.dataset.table]));
}

// Links: #hosts=FILTER narrows a table, #host=NAME shows one host, #person=ID the machines of a person, #hosts all.

function follow() {
  const [[target, wanted] = ["", ""]] = new URLSearchParams(location.hash.slice(1));
  const name = ["host", "person"].includes(target) ? "hosts" : target;
  const view = views.get(name);
  if (view && target === "person") {
    const { people } = view.fields;
    const is = (key) => key === wanted || folded(labels.get(key) ?? key) === folded(wanted); // or the e-mail
    view.narrow(`machines of ${labels.get(wanted) ?? wanted}`, (row) => (people[row] ?? []).some(is));
  } else if (view && target === "host") {
    const { host, asset } = view.fields;
    view.narrow(wanted, (row) => [host[row], asset[row]].some((known) => folded(known) === folded(wanted)));
  } else if (view && Object.hasOwn(view.filters, wanted)) {
    view.narrow(view.filters[wanted], (row) => view.fields.filters[row].includes(wanted));
  } else {
    view?.narrow("");
  }
  document.getElementById(name)?.scrollIntoView();
}

addEventListener("hashchange", follow);
addEventListener("beforeprint", () => views.get("hosts")?.draw(PRINTED_ROWS));
if (location.hash) {
  follow();
}
