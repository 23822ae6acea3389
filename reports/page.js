"use strict";

// The lists: rows that are filtered, counted and sorted as the address says. Names are only ever text: no string
// is parsed as HTML.

const PAGE_ROWS = 100;
const PRINTED_ROWS = 1000;
const content = JSON.parse(document.getElementById("packed").textContent);
const { people } = content;
const { accounts, account, events, days } = content.users;
const hosts = columnsOf(content.hosts);
const unmatched = columnsOf(content.unmatched);
const writes = columnsOf(content.writes);
const FORMULA = new RegExp(content.formula, "gv");

const whole = new Intl.NumberFormat("en").format;
const byName = new Intl.Collator("en", { numeric: true }).compare;
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const folded = (text) => text.normalize("NFC").toLowerCase();
const percent = (part) => `${(100 * part).toFixed(0)}%`;
const numbers = (length) => Array.from({ length }, (_, number) => number);

// See `packed` in reports/page_tables.py.
function columnsOf(packed) {
  const unpacked = (values) => (values.of ? values.at.map((number) => values.of[number]) : values);
  return Object.fromEntries(Object.entries(packed).map(([name, values]) => [name, unpacked(values)]));
}

// The users of a machine are the numbers from one of these to the next one.
const firstUser = [0];
for (const count of content.users.users) {
  firstUser.push(firstUser.at(-1) + count);
}
const usersOf = (host) => numbers(firstUser[host + 1] - firstUser[host]).map((number) => firstUser[host] + number);
const personOf = (user) => accounts.person[account[user]];
const ownersOf = (host) => (hosts.planned[host] === null ? (hosts.owners[host] ?? []) : [hosts.planned[host]]);
const sureOf = (host) => hosts[content.measured][host];

// Elements

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}

const bdi = (text) => element("bdi", {}, text);
const quiet = (text) => element("small", {}, bdi(text));

function link(text, changes, properties = {}) {
  return element("a", { href: addressWith(changes), ...properties }, bdi(text));
}

const hostKey = (host) => hosts.host_id[host] ?? hosts.name[host];
const hostLink = (host) => link(hosts.name[host], { host: hostKey(host), person: null });

function personLink(person) {
  const title = people.address[person] ?? people.key[person];
  return link(people.name[person], { person: people.key[person], host: null }, { title });
}

const personLinks = (persons) => (persons ?? []).flatMap((person, at) => (at ? [", ", personLink(person)] : [personLink(person)]));
const personTexts = (persons) => (persons ?? []).map((person) => people.name[person]).join(", ");

function pill(status) {
  const shape = drawn("use", { href: `#icon-${status.replaceAll(" ", "-")}` });
  const icon = drawn("svg", { class: "icon", "data-status": status, viewBox: "0 0 12 12", "aria-hidden": "true" }, shape);
  return element("span", { className: "pill", title: content.statuses[status] }, icon, status);
}

function howSure(host) {
  if (hosts.confidence[host] !== null) {
    return [`${Math.min(99, Math.round(100 * hosts.confidence[host]))} of 100`];
  }
  if (hosts.share[host] === null) {
    return [];
  }
  const value = drawn("rect", { class: "value", width: 100 * hosts.share[host], height: 4 });
  const bar = { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" };
  return [drawn("svg", bar, drawn("rect", { width: 100, height: 4 }), value), percent(hosts.share[host])];
}

const date = (text) => (text === null ? "" : day.format(new Date(text)));

function time(text) {
  return element("time", { dateTime: text }, moment.format(new Date(text)));
}

// Lists: each column has a head, the text by which it is sorted and saved, and the nodes of its cell.

function column(head, text, cell = (row) => [bdi(text(row) ?? "")]) {
  return { head, text, cell };
}

function count(head, value) {
  return { head, text: value, cell: (row) => [whole(value(row))], isNumber: true };
}

function persons(head, found) {
  return column(head, (row) => personTexts(found(row)), (row) => personLinks(found(row)));
}

const one = (person) => (person === null ? [] : [person]);
const machine = column("Machine", (host) => hosts.name[host], (host) => [hostLink(host)]);
const sure = {
  ...column(content.measured === "share" ? "Share" : "How sure", sureOf, howSure),
  isNumber: true,
};
const seen = column("Last logon", (host) => hosts.seen[host], (host) => [date(hosts.seen[host])]);
const statusAndWhy = column(
  "Status",
  (host) => `${hosts.status[host]}: ${hosts.why[host]}`,
  (host) => [pill(hosts.status[host]), " ", element("small", {}, hosts.why[host])],
);

const STATUS = { name: "status", title: "Status", of: (host) => hosts.status[host] };
const OF_HOSTS = [
  { name: "reason", title: "Reason", of: (host) => hosts.why[host] },
  { name: "department", title: "Department", of: (host) => hosts.department[host] },
  { name: "kind", title: "Kind of machine", of: (host) => hosts.kind[host] },
];
const hasAsset = (host) => hosts.host_id[host] !== null;
const ofHosts = (facets, holds) => ({
  rows: numbers(hosts.name.length).filter(holds),
  facets,
  find: (words) => hostsFound(words),
  open: (host) => ({ host: hostKey(host), person: null }),
});

const VIEWS = {
  machines: {
    title: "Machines",
    ...ofHosts([STATUS, ...OF_HOSTS], hasAsset),
    columns: { machine, owner: persons(content.plan ? "Owner (PLAN)" : "Owner", ownersOf), status: statusAndWhy, sure, seen },
  },
  conflicts: {
    title: "Conflicts",
    ...ofHosts(OF_HOSTS, (host) => hosts.status[host] === "conflict"),
    columns: {
      machine,
      owner: persons("Owner in the inventory", ownersOf),
      primary: persons("Primary user", (host) => one(hosts.primary[host])),
      sure,
      since: column("Since", (host) => hosts.conflict_since[host], (host) => [date(hosts.conflict_since[host])]),
      seen,
    },
  },
  people: {
    title: "People",
    rows: numbers(people.key.length),
    facets: [],
    find: (words) => peopleFound(words),
    open: (person) => ({ person: people.key[person], host: null }),
    columns: {
      person: column("Person", (person) => people.name[person], (person) => [personLink(person)]),
      address: column("Address", (person) => people.address[person]),
      department: column("Department", (person) => people.department[person]),
      owned: count("Owns", (person) => machinesOf(person).owned.length),
      primary: count("Primary user of", (person) => machinesOf(person).primary.length),
      used: count("Logs on to", (person) => machinesOf(person).used.size),
    },
  },
  users: {
    title: "Users without one user asset",
    rows: numbers(unmatched.user.length),
    facets: [],
    find: (words) => ofPeople(words, unmatched.user),
    open: (row) => ({ person: people.key[unmatched.user[row]], host: null }),
    columns: {
      user: persons("User", (row) => [unmatched.user[row]]),
      waiting: count("Hosts without owner", (row) => unmatched.hosts_waiting[row]),
      hosts: count("Hosts used", (row) => unmatched.hosts[row]),
      events: count("Logons", (row) => unmatched.events[row]),
      candidates: persons("User assets", (row) => unmatched.candidates[row]),
      perhaps: persons("Did you mean", (row) => unmatched.perhaps[row]),
    },
  },
  names: {
    title: "Names without asset",
    ...ofHosts([], (host) => !hasAsset(host)),
    columns: {
      machine: { ...machine, head: "Name" },
      primary: persons("Primary user", (host) => one(hosts.primary[host])),
      sure,
      seen,
    },
  },
  writes: {
    title: content.plan ? "Plan" : "Written",
    rows: numbers(writes.own.length).filter((row) => writes.own[row]),
    facets: [{ name: "outcome", title: "Outcome", of: (row) => writes.outcome[row] }],
    find: (words) => new Set(writes.name.flatMap((name, row) => (folded(name).includes(words) ? [row] : []))),
    open: (row) => ({ host: writes.host_id[row], person: null }),
    columns: {
      machine: column("Machine", (row) => writes.name[row], (row) => [link(writes.name[row], { host: writes.host_id[row] })]),
      outcome: column("Outcome", (row) => [writes.outcome[row], writes.message[row]].filter(Boolean).join(": ")),
      before: persons("Owner before", (row) => writes.before[row]),
      after: persons(content.plan ? "Owner (PLAN)" : "Owner", (row) => writes.after[row]),
      department: column("Department", (row) => writes.department[row]),
      criticality: column("Criticality", (row) => writes.criticality[row]),
      at: column("When", (row) => writes.at[row], (row) => [time(writes.at[row])]),
    },
  },
};

// Search: a text in a name, an address or an id; or else a whole name in another spelling of it.

const lazily = (make) => {
  let made;
  return () => (made ??= make());
};
const lines = (texts) => `\n${texts.filter(Boolean).map(folded).join("\n")}\n`;
const texts = lazily(() => ({
  hosts: hosts.name.map((name, host) => lines([name, hosts.names[host], hosts.host_id[host]])),
  people: people.key.map((key, person) => lines([people.name[person], people.address[person], key])),
  accounts: accounts.name.map((name) => lines([name])),
}));

// `LT-1.CORP.EXAMPLE` is lt-1; `CORP\ann` and `ann@corp.example` are ann.
function spellings(words) {
  const account = words.slice(words.lastIndexOf("\\") + 1);
  const [name, domain] = account.split("@");
  return account !== words || domain !== undefined ? [account, name] : [words.split(".")[0]];
}

function marked(words) {
  const marks = (found) => Object.fromEntries(Object.entries(texts()).map(([of, all]) => [of, all.map(found)]));
  const somewhere = (marks) => Object.values(marks).some((each) => each.includes(true));
  const asked = [words, ...spellings(words).map((word) => `\n${word}\n`)].filter((word) => word.trim());
  return asked.map((word) => lazily(() => marks((text) => text.includes(word)))).find((each) => somewhere(each()))?.();
}

function found(words, hits) {
  const together = marked(words);
  if (together || !/\s/.test(words)) {
    return together ? hits(together) : new Set();
  }
  const [first, ...others] = words.split(/\s+/).map((word) => found(word, hits));
  return new Set([...first].filter((row) => others.every((each) => each.has(row))));
}

function hostsFound(words) {
  return found(words, (marks) => {
    const users = accounts.person.map((person, number) => marks.accounts[number] || marks.people[person]);
    const isFound = (host) =>
      marks.hosts[host] ||
      [...ownersOf(host), ...one(hosts.primary[host])].some((person) => marks.people[person]) ||
      usersOf(host).some((user) => users[account[user]]);
    return new Set(numbers(hosts.name.length).filter(isFound));
  });
}

function peopleFound(words) {
  return found(words, (marks) => {
    const ofAccounts = accounts.person.filter((_, number) => marks.accounts[number]);
    return new Set([...marks.people.flatMap((is, person) => (is ? [person] : [])), ...ofAccounts]);
  });
}

function ofPeople(words, persons) {
  const known = peopleFound(words);
  return new Set(persons.flatMap((person, row) => (known.has(person) ? [row] : [])));
}

// The machines of each person: owned, those whose primary user they are, and those used (with the user's number).
const machines = lazily(() => {
  const all = people.key.map(() => ({ owned: [], primary: [], used: new Map() }));
  for (const host of numbers(hosts.name.length)) {
    (hosts.owners[host] ?? []).forEach((person) => all[person].owned.push(host));
    one(hosts.primary[host]).forEach((person) => all[person].primary.push(host));
    usersOf(host).forEach((user) => all[personOf(user)].used.set(host, [...(all[personOf(user)].used.get(host) ?? []), user]));
  }
  return all;
});
const machinesOf = (person) => machines()[person];

// The address says all: view, q, the facets, stage, sure, sort; and which machine or person is open.

const asked = () => new URLSearchParams(location.hash.slice(1));

function addressWith(changes) {
  const next = asked();
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    if (value) {
      next.set(name, value);
    }
  }
  return `#${next}`;
}

function go(address, method = "pushState") {
  history[method](null, "", address);
  follow();
}

// A row counts for a facet's values if nothing but this facet excludes it.
function narrowed(view, query) {
  const { facets } = view;
  const words = folded(query.get("q") ?? "").trim();
  const hits = words ? view.find(words) : null;
  const [stage, tenth] = ["stage", "sure"].map((name) => (query.has(name) ? Number(query.get(name)) : null));
  const isSure = (host) => sureOf(host) !== null && Math.min(9, Math.floor(10 * sureOf(host))) === tenth;
  const wanted = facets.map(({ name }) => new Set(query.getAll(name)));
  const counts = facets.map(() => new Map());
  const rows = view.rows.filter((row) => {
    if ((hits && !hits.has(row)) || (stage && hosts.stage[row] < stage) || (tenth !== null && !isSure(row))) {
      return false;
    }
    const values = facets.map(({ of }) => of(row) ?? "none");
    const failing = values.filter((value, number) => wanted[number].size && !wanted[number].has(value)).length;
    values.forEach((value, number) => {
      const fails = wanted[number].size && !wanted[number].has(value);
      if (failing === (fails ? 1 : 0)) {
        counts[number].set(value, (counts[number].get(value) ?? 0) + 1);
      }
    });
    return !failing;
  });
  return { rows, counts };
}

function sorted(view, rows, sort) {
  const column = view.columns[sort?.replace("-", "")];
  if (!column) {
    return rows;
  }
  const keys = new Map(rows.map((row) => [row, column.text(row)]));
  const says = (row) => keys.get(row) !== null && keys.get(row) !== "";
  const sign = sort.startsWith("-") ? -1 : 1;
  const compare = column.isNumber ? (one, other) => one - other : byName;
  // What says nothing comes last.
  return [...rows].sort((one, other) =>
    says(one) && says(other) ? sign * compare(keys.get(one), keys.get(other)) : says(other) - says(one),
  );
}

// Drawing

const at = (selector) => document.querySelector(selector);
const places = { views: at("#views"), facets: at("#facets"), search: at("#search"), status: at("#list [role=status]"), more: at("#more") };
let list = { rows: [] };

function drawList(query) {
  const name = Object.hasOwn(VIEWS, query.get("view")) ? query.get("view") : "machines";
  const view = VIEWS[name];
  const { rows, counts } = narrowed(view, query);
  list = { name, view, rows: sorted(view, rows, query.get("sort")) };
  places.views.replaceChildren(...Object.entries(VIEWS).map(([each, of]) => drawTab(each, of, each === name)));
  if (places.search.value !== query.get("q")) {
    places.search.value = query.get("q") ?? "";
  }
  places.status.textContent = `${whole(rows.length)} of ${whole(view.rows.length)}`;
  drawFacets(view, counts, query);
  drawHeads(view, query.get("sort"));
  drawRows(PAGE_ROWS);
}

function drawTab(name, view, isOpen) {
  const tab = element("a", { href: `#view=${name}` }, view.title, " ", element("small", {}, whole(view.rows.length)));
  tab.ariaCurrent = isOpen ? "page" : null;
  return tab;
}

function drawFacets(view, counts, query) {
  const groups = view.facets.map(({ name, title }, number) => {
    const values = [...counts[number]].sort(([one, few], [other, many]) => many - few || byName(one, other));
    const items = values.map(([value, count]) => drawFacet(name, value, count, query.getAll(name).includes(value)));
    const isEmpty = values.every(([value]) => value === "none");
    return isEmpty ? null : element("section", {}, element("h3", {}, title), element("ul", {}, ...items));
  });
  const filters = ["q", "stage", "sure", ...view.facets.map(({ name }) => name)].filter((name) => query.has(name));
  const none = Object.fromEntries(filters.map((name) => [name, null]));
  const clear = filters.length ? element("a", { className: "clear", href: addressWith(none) }, "Clear filters") : null;
  places.facets.lastElementChild.replaceChildren(...[clear, ...groups].filter(Boolean));
  places.facets.hidden = !view.facets.length;
}

function drawFacet(name, value, count, isChosen) {
  const next = asked();
  if (isChosen) {
    next.delete(name, value);
  } else {
    next.append(name, value);
  }
  const text = name === "status" ? pill(value) : element("span", {}, bdi(value));
  const choice = element("a", { href: `#${next}` }, text, " ", element("small", {}, whole(count)));
  choice.ariaCurrent = isChosen ? "true" : null;
  return element("li", {}, choice);
}

function drawHeads(view, sort) {
  const heads = Object.entries(view.columns).map(([name, { head, isNumber }]) => {
    const [once, again] = isNumber ? [`-${name}`, name] : [name, `-${name}`];
    const change = { sort: sort === once ? again : once };
    const arrow = sort === name ? " ↑" : sort === `-${name}` ? " ↓" : "";
    const made = element("th", { scope: "col", className: name }, element("a", { href: addressWith(change) }, head, arrow));
    made.ariaSort = arrow ? (sort === name ? "ascending" : "descending") : null;
    return made;
  });
  at("#rows thead tr").replaceChildren(...heads);
}

function drawRows(limit) {
  const columns = Object.entries(list.view.columns);
  const cells = (row) => columns.map(([name, { cell }]) => element("td", { className: name }, ...cell(row)));
  const rows = list.rows.slice(0, limit).map((row) => Object.assign(element("tr", {}, ...cells(row)), { row }));
  at("#rows tbody").replaceChildren(...rows);
  at("#rows table").className = list.name;
  places.more.hidden = list.rows.length <= limit;
  places.more.textContent = `Show more: these are ${whole(limit)} of ${whole(list.rows.length)}`;
}

// The rows found, for a spreadsheet: see `as_csv` in reports/exports.py.
function download() {
  const columns = Object.values(list.view.columns);
  const quoted = (cell) => `"${String(cell ?? "").replace(FORMULA, "$1'$2").replaceAll('"', '""')}"`;
  const rows = [columns.map(({ head }) => head), ...list.rows.map((row) => columns.map(({ text }) => text(row)))];
  const text = rows.map((cells) => cells.map(quoted).join(",")).join("\r\n");
  const made = element("a", { href: URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" })) });
  made.download = `${content.plan ? "PLAN-" : ""}${list.name}.csv`;
  made.click();
  URL.revokeObjectURL(made.href);
}

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = element("textarea", { value: text }); // where the page came by plain HTTP
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  button.textContent = "Copied";
}
