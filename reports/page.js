"use strict";

// Shows the tables, a page of rows at a time, sorted and searched; the pages of people; and the plots. Names are
// only ever text: no string is parsed as HTML.

const { texts, people, logons, tables, page_rows: PAGE_ROWS } = JSON.parse(
  document.getElementById("packed").textContent,
);
const FEW = 10; // rows of a person's table that nobody needs to search
const main = document.querySelector("main");
const whole = new Intl.NumberFormat("en");

// Columns are written in the shortest way: see reports/rows.py.
function unpacked(values) {
  if (values.of) {
    return values.at.map((number) => values.of[number]);
  }
  let last = 0;
  return values.steps ? values.steps.map((step) => (last += step)) : values;
}

for (const table of Object.values(tables)) {
  for (const [field, values] of Object.entries(table.fields)) {
    table.fields[field] = unpacked(values);
  }
  for (const [style, field] of table.parts.filter(([style]) => style.endsWith("people"))) {
    table.fields[field] = table.fields[field].map((some) => (Array.isArray(some) ? some : some === null ? [] : [some]));
  }
}
for (const field of ["row", "events", "days", "last_seen"]) {
  logons[field] = unpacked(logons[field]);
}

function element(tag, ...children) {
  const made = document.createElement(tag);
  made.append(...children);
  return made;
}

function button(words, action) {
  const made = element("button", words);
  made.type = "button";
  made.addEventListener("click", action);
  return made;
}

function name(code) {
  return element("bdi", texts[code]);
}

// People

const isAccount = (person) => person >= people.ids.length;

function personLink(person) {
  const account = isAccount(person);
  const key = texts[account ? people.labels[person] : people.ids[person]];
  return `#${account ? "account" : "person"}=${encodeURIComponent(key)}`;
}

function personCell(person) {
  const [label, id] = [people.labels[person], people.ids[person]];
  const link = element("a", name(label ?? id));
  link.href = personLink(person);
  const beside = isAccount(person) ? "no one user asset" : label !== null ? name(id) : "";
  return element("div", link, ...(beside ? [" ", element("small", beside)] : []));
}

// Whose page a user name leads to: of the user asset it stands for, or its own.
const whose = new Map();
for (const [person, accounts] of Object.entries(people.accounts)) {
  accounts.forEach((code) => whose.set(code, Number(person)));
}
people.labels.slice(people.ids.length).forEach((code, number) => whose.set(code, people.ids.length + number));

function userLink(code) {
  const link = element("a", name(code));
  link.href = personLink(whose.get(code));
  return link;
}

function personOf(kind, key) {
  const keys = kind === "person" ? people.ids : people.labels;
  return keys.findIndex((code, person) => texts[code] === key && isAccount(person) === (kind === "account"));
}

// Cells: what each style shows of the values of its fields in a row. The first one that is null leaves it out.

function logonsText(events, total, days) {
  const onDays = days === null ? "" : ` on ${whole.format(days)} ${days === 1 ? "day" : "days"}`;
  return `${whole.format(events)} of ${whole.format(total)} logons${onDays}`;
}

const SHOWN = {
  name,
  user: userLink,
  words: (code) => texts[code],
  date: (code) => texts[code],
  small: (code) => element("small", name(code)),
  note: (code) => element("small", texts[code]),
  old: (code) => element("s", name(code)),
  people: (ids) => element("div", ...ids.map(personCell)),
  old_people: (ids) => element("div", ...ids.map((person) => element("s", personCell(person)))),
  count: (number) => whole.format(number),
  percent: (share) => `${(100 * share).toFixed(1)}%`,
  part: (number, all) => element("small", `${whole.format(number)} of ${whole.format(all)}`),
  logons: (events, total, days) => (total ? element("small", logonsText(events, total, days)) : ""),
};
const NUMBERS = new Set(["count", "percent", "part", "logons"]);
const PEOPLE = new Set(["people", "old_people"]);

// Texts are in the order in which people sort them, so that their codes are compared.

function sortKey([style, field], fields) {
  const values = fields[field];
  if (!PEOPLE.has(style)) {
    return (row) => values[row];
  }
  const code = (person) => people.labels[person] ?? people.ids[person];
  return (row) => (values[row].length ? code(values[row][0]) : null);
}

const folded = (text) => text.normalize("NFC").toLowerCase();
let foldedTexts = null;

// Which texts hold a word, and which people: a table is searched by looking its codes up.
function hitsOf(word) {
  foldedTexts ??= texts.map(folded);
  const hits = Uint8Array.from(foldedTexts, (text) => text.includes(word));
  const persons = Uint8Array.from(people.labels, (label, person) => hits[label] || hits[people.ids[person]]);
  return { hits, persons };
}

class TableView {
  constructor(place, table) {
    this.table = table;
    this.order = Array.from({ length: table.rows }, (_, row) => row);
    this.found = this.order;
    this.first = 0;
    this.filter = null;
    this.build(place);
    this.draw();
  }

  build(place) {
    const { title, columns, filters } = this.table;
    this.box = element("input");
    this.box.type = "search";
    this.box.placeholder = "Search";
    this.box.setAttribute("aria-label", `Search: ${title}`);
    this.box.addEventListener("input", () => this.search());
    this.status = element("span");
    this.status.setAttribute("role", "status");
    const tools = element("div", this.box);
    tools.className = "tools";
    if (filters.length) {
      this.select = element("select", new Option("all", ""));
      this.select.append(...filters.map(([key, words, , rows]) => new Option(`${words} (${whole.format(rows)})`, key)));
      this.select.setAttribute("aria-label", `Show: ${title}`);
      this.select.addEventListener("change", () => this.choose(this.select.value));
      tools.append(this.select);
    }
    tools.append(this.status);

    this.heads = columns.map(([head]) => {
      const made = element("th");
      made.scope = "col";
      made.dataset.head = head;
      return [made, head];
    });
    this.heads.forEach(([made, head], column) => made.append(button(head, () => this.sort(column))));
    this.body = element("tbody");
    const heads = element("thead", element("tr", ...this.heads.map(([made]) => made)));
    const table = element("table", element("caption", title), heads, this.body);
    table.className = "data labelled";
    this.rows = element("div", table);
    this.rows.className = "rows";
    this.rows.tabIndex = 0;
    this.rows.setAttribute("role", "region");
    this.rows.setAttribute("aria-label", title);

    this.range = element("span");
    this.back = button("Back", () => this.turn(-PAGE_ROWS));
    this.next = button("Next", () => this.turn(PAGE_ROWS));
    this.pager = element("div", this.back, this.range, this.next);
    this.pager.className = "pager";
    tools.hidden = this.table.rows <= (this.table.few ?? 0);
    place.replaceChildren(tools, this.rows, this.pager);
  }

  sort(column) {
    const [made] = this.heads[column];
    const [first] = this.table.columns[column][1];
    const numeric = NUMBERS.has(first[0]);
    const [once, again] = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
    const order = made.ariaSort === once ? again : once;
    const sign = order === "ascending" ? 1 : -1;
    const key = sortKey(first, this.table.fields);
    const compare = (one, other) => {
      const [left, right] = [key(one), key(other)];
      if (left === null || right === null) {
        return (left === null) - (right === null); // what says nothing comes last
      }
      return sign * (left - right);
    };
    this.order.sort(compare);
    this.heads.forEach(([each]) => each.removeAttribute("aria-sort"));
    made.setAttribute("aria-sort", order);
    this.search();
  }

  choose(key) {
    const chosen = this.table.filters.find(([each]) => each === key);
    this.filter = chosen ? new Set(chosen[2]) : null;
    if (this.select) {
      this.select.value = chosen ? key : "";
    }
    this.search();
  }

  search() {
    const { fields, columns, rows } = this.table;
    const parts = columns.flatMap(([, each]) => each).filter(([style]) => !NUMBERS.has(style));
    const words = folded(this.box.value).split(/\s+/).filter(Boolean);
    const tests = words.map((word) => {
      const { hits, persons } = hitsOf(word);
      return parts.map(([style, field]) => [fields[field], PEOPLE.has(style) ? persons : hits, PEOPLE.has(style)]);
    });
    const holds = (row) => ([values, hits, several]) =>
      several ? values[row].some((person) => hits[person]) : values[row] !== null && hits[values[row]];
    this.found = this.order.filter(
      (row) => (!this.filter || this.filter.has(fields.group[row])) && tests.every((test) => test.some(holds(row))),
    );
    this.status.textContent =
      words.length || this.filter ? `${whole.format(this.found.length)} of ${whole.format(rows)}` : "";
    this.first = 0;
    this.draw();
  }

  turn(rows) {
    this.first += rows;
    this.draw();
    this.rows.scrollTop = 0;
  }

  draw() {
    const { columns, fields } = this.table;
    const shown = this.found.slice(this.first, this.first + PAGE_ROWS);
    this.body.replaceChildren(
      ...shown.map((row) => element("tr", ...columns.map(([head, parts]) => cell(head, parts, fields, row)))),
    );
    const last = this.first + shown.length;
    this.pager.hidden = this.found.length <= PAGE_ROWS;
    this.back.disabled = this.first === 0;
    this.next.disabled = last >= this.found.length;
    this.range.textContent =
      `Rows ${whole.format(this.first + 1)} to ${whole.format(last)} of ${whole.format(this.found.length)}`;
  }
}

function cell(head, parts, fields, row) {
  const made = element("td");
  made.dataset.label = head; // where the page is narrow a row is a list of these
  for (const [style, ...names] of parts) {
    const values = names.map((each) => fields[each][row]);
    if (values[0] !== null) {
      made.append(SHOWN[style](...values), " ");
    }
  }
  const [[style]] = parts;
  made.className = PEOPLE.has(style) ? "people" : NUMBERS.has(style) || style === "date" ? "number" : style;
  return made;
}

const views = new Map();
for (const place of document.querySelectorAll("[data-table]")) {
  views.set(place.dataset.table, new TableView(place, tables[place.dataset.table]));
}

// The page of one person: tables whose rows are some of those of the hosts.

function someHosts(title, rows, columns, more = {}) {
  const { fields } = tables.hosts;
  const names = columns.flatMap(([, parts]) => parts).flatMap(([, ...each]) => each);
  const picked = names.map((each) => [each, more[each] ?? rows.map((row) => fields[each][row])]);
  return { title, columns, rows: rows.length, fields: Object.fromEntries(picked), filters: [], few: FEW };
}

function logonsOf(person) {
  const from = logons.hosts.slice(0, person).reduce((sum, hosts) => sum + hosts, 0);
  const part = (values) => values.slice(from, from + logons.hosts[person]);
  return Object.fromEntries(["row", "events", "days", "last_seen"].map((each) => [each, part(logons[each])]));
}

function showPerson(person) {
  const place = document.getElementById("person");
  const { columns, fields, rows } = tables.hosts;
  const all = Array.from({ length: rows }, (_, row) => row);
  const column = (head) => columns.find(([each]) => each === head);
  const theirs = logonsOf(person);
  const back = element("a", "All people");
  back.href = "#people";
  const children = [element("p", back), element("h2", name(people.labels[person] ?? people.ids[person]))];
  const add = (heading, nothing, table) => {
    children.push(element("h3", `${heading} (${whole.format(table.rows)})`));
    const spot = element("div", element("p", nothing));
    if (table.rows) {
      new TableView(spot, table);
    }
    children.push(spot);
  };
  if (isAccount(person)) {
    const candidates = people.candidates[person - people.ids.length];
    const words = candidates.length ? "This user name may be any of these:" : "No user asset has this user name.";
    children.push(element("p", words), ...candidates.map(personCell));
  } else {
    const accounts = (people.accounts[person] ?? []).flatMap((code) => [" ", name(code)]);
    const logs = accounts.length ? ["Logs on as", ...accounts, "."] : ["Does not log on."];
    children.push(element("p", "User asset ", name(people.ids[person]), ". ", ...logs));
    people.candidates.forEach((candidates, number) => {
      if (candidates.includes(person)) {
        children.push(element("p", "May be this person, too:"), personCell(people.ids.length + number));
      }
    });
    const machines = all.filter((row) => fields.owner_ids[row].includes(person) || fields.resolved[row].includes(person));
    add("Machines: owner, or named by the logons", "None.", someHosts("Machines", machines, columns));
  }
  add(
    "Logs on to",
    "Nowhere in the window.",
    someHosts(
      "Logs on to",
      theirs.row,
      [
        column("Host"),
        ["Their logons", [["count", "events"], ["logons", "events", "total_events", "days"]]],
        ["Their last day", [["date", "last_seen"]]],
        column("Owner"),
      ],
      theirs,
    ),
  );
  if (logons.all > logons.row.length) {
    children.push(element("p", "Of a large company this page holds the hosts that people use most; asset-owners sql has them all."));
  }
  if (!isAccount(person)) {
    const paper = all.filter((row) => fields.existing[row].includes(person));
    add(
      "On paper: owner in the inventory before the run",
      "Nothing.",
      someHosts("On paper", paper, ["Host", "Why", "Leading user", "Share", "Last seen"].map(column)),
    );
  }
  place.replaceChildren(...children);
}

// Links: #hosts=FILTER narrows a table, #person=ID and #account=NAME show a page of their own.

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no link of ours
  }
}

function follow() {
  const [, target, key] = location.hash.match(/^#([^=]*)=?(.*)$/) ?? [null, "", ""];
  const person = ["person", "account"].includes(target) ? personOf(target, decoded(key)) : -1;
  const before = main.querySelector("#person").hidden;
  for (const section of main.children) {
    section.hidden = (section.id === "person") !== (person >= 0);
  }
  if (person >= 0) {
    showPerson(person);
    main.scrollIntoView();
    return;
  }
  if (!before) {
    dispatchEvent(new Event("resize")); // plots that were drawn while hidden have no width
  }
  if (key) {
    views.get(target)?.choose(decoded(key));
  }
  document.getElementById(target)?.scrollIntoView();
}

addEventListener("hashchange", follow);
if (location.hash) {
  follow();
}

// Plots

const tip = element("div");
tip.className = "tip";
tip.hidden = true;
document.body.append(tip);

function showTip(_handler, event, _item, text) {
  tip.hidden = !text;
  tip.textContent = text;
  tip.style.left = `${Math.max(0, Math.min(event.clientX + 12, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

const plots = JSON.parse(document.getElementById("plots").textContent);
for (const [place, plot] of Object.entries(plots)) {
  const options = { actions: false, ast: true, defaultStyle: false, renderer: "svg", tooltip: showTip };
  vegaEmbed(document.getElementById(place), plot, options);
}
