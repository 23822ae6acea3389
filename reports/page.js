// The lists: rows that are filtered, counted and sorted as the address says. Names are only ever text: no string
// is parsed as HTML.

const PAGE_ROWS = 100;
const PRINTED_ROWS = 1000;
const MOST_VALUES = 50; // of a facet
const bytes = Uint8Array.from(atob(document.getElementById("packed").textContent), (byte) => byte.charCodeAt(0));
const unzipped = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
const content = await new Response(unzipped).json();
const { hosts, people, unmatched, writes } = content;
const { accounts, account, events, days } = content.users;

const whole = new Intl.NumberFormat("en").format;
const byName = new Intl.Collator("en", { numeric: true }).compare;
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric", timeZone: "UTC" });
const moment = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "short" });
const date = (text) => (text === null ? "" : day.format(new Date(text)));
const folded = (text) => text.normalize("NFC").toLowerCase();
const numbers = (length, first = 0) => Array.from({ length }, (_, number) => first + number);
const one = (value) => (value === null ? [] : [value]);

function lazily(make) {
  let made;
  return () => (made ??= make());
}

// Returns a function that gives the items with a key, of those that an item may have several of.
function byKey(items, keysOf) {
  const groups = lazily(() => {
    const found = new Map();
    for (const item of items) {
      new Set(keysOf(item)).forEach((key) => found.get(key)?.push(item) ?? found.set(key, [item]));
    }
    return found;
  });
  return (key) => groups().get(key) ?? [];
}

// The users of a host are the numbers from one of these to the next one.
const firstUser = [0];
for (const count of content.users.users) {
  firstUser.push(firstUser.at(-1) + count);
}
const allHosts = numbers(hosts.name.length);
const usersOf = (host) => numbers(firstUser[host + 1] - firstUser[host], firstUser[host]);
const personOf = (user) => accounts.person[account[user]];
const ownersOf = (host) => (hosts.planned[host] === null ? (hosts.owners[host] ?? []) : [hosts.planned[host]]);
const personsOf = (host) => [...ownersOf(host), ...one(hosts.primary[host]), ...usersOf(host).map(personOf)];
const sureOf = (host) => hosts[content.measured][host];
const hasAsset = (host) => hosts.host_id[host] !== null;
const isConflict = (host) => hosts.status[host] === "conflict";
// A name without an asset may be another asset's id.
const hostKey = (host) => hosts.host_id[host] ?? `${hosts.name[host]} (no asset)`;

// The assets with each name: it should be one. A name of several is shown with the id, and so is one of people.
const namesOf = (host) => new Set([hosts.name[host], ...(hosts.names[host] ?? hosts.name[host]).split(" ")]);
const withName = byKey(allHosts.filter(hasAsset), namesOf);
const titled = (name, id) => (withName(name).length > 1 ? `${name} (${id})` : name);
const titleOf = (host) => titled(hosts.name[host], hostKey(host));
const peopleNamed = byKey(numbers(people.key.length), (person) => [people.name[person]]);

function nameOf(person) {
  const [name, key] = [people.name[person], people.key[person]];
  return peopleNamed(name).length < 2 || key === `${name} (account)` ? name : `${name} (${key})`;
}

// The hosts on which a person has each role.
const ownedBy = byKey(allHosts, (host) => hosts.owners[host] ?? []);
const usedMostBy = byKey(allHosts, (host) => one(hosts.primary[host]));
const usedBy = byKey(allHosts, (host) => usersOf(host).map(personOf));

// Elements

const at = (selector) => document.querySelector(selector);

function element(tag, properties, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function drawn(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  Object.entries(attributes).forEach(([name, value]) => made.setAttribute(name, value));
  made.append(...children);
  return made;
}

const bdi = (text) => element("bdi", {}, text);
const quiet = (text) => element("small", {}, bdi(text));
const andMore = (number) => (number > 0 ? [quiet(`and ${whole(number)} more`)] : []);
const withCommas = (links) => links.flatMap((each, number) => (number ? [", ", each] : [each]));
const time = (text) => element("time", { dateTime: text }, moment.format(new Date(text)));
const link = (text, changes, title = "") => element("a", { href: addressWith(changes), title }, bdi(text));
const hostLink = (host) => link(titleOf(host), { host: hostKey(host), person: null });
const personTexts = (persons) => (persons ?? []).map(nameOf).join(", ");

function personLinks(persons) {
  const personLink = (person, key) => link(nameOf(person), { person: key, host: null }, people.address[person] ?? key);
  return withCommas((persons ?? []).map((person) => personLink(person, people.key[person])));
}

function pill(status, isQuiet = false) {
  const shape = drawn("use", { href: `#icon-${status.replaceAll(" ", "-")}` });
  const icon = { class: "icon", viewBox: "0 0 12 12", "aria-hidden": "true" };
  const about = { title: content.statuses[status], className: isQuiet ? "quiet" : "" };
  return element("span", about, drawn("svg", icon, shape), status);
}

const isKnown = (host) => hosts.acknowledged_at[host] !== null;
const doubt = (host) => (hosts.doubts[host] && ownersOf(host).includes(hosts.primary[host]) ? `, ${hosts.doubts[host]}` : "");
const state = (host) => [pill(hosts.status[host], isKnown(host)), " ", element("small", {}, hosts.why[host] + doubt(host))];

// Who acknowledged a conflict, when and why.
function acknowledged(host) {
  const note = one(hosts.note[host]).map((why) => `: ${why}`);
  return isKnown(host) ? `${date(hosts.acknowledged_at[host])} by ${hosts.acknowledged_by[host]}${note}` : "";
}

function sureText(host) {
  const [confidence, share] = [hosts.confidence[host], hosts.share[host]];
  if (confidence !== null) {
    return `${Math.min(99, Math.round(100 * confidence))} of 100`;
  }
  return share === null ? null : `${Math.floor(100 * share + 1e-9)}%`;
}

function howSure(host) {
  const [text, share] = [sureText(host), hosts.share[host]];
  if (hosts.confidence[host] !== null || share === null) {
    return one(text);
  }
  const value = drawn("rect", { class: "value", width: 100 * share, height: 4 });
  const bar = { class: "bar", viewBox: "0 0 100 4", preserveAspectRatio: "none", "aria-hidden": "true" };
  return [drawn("svg", bar, drawn("rect", { width: 100, height: 4 }), value), text];
}

// Whose share it is, where that is not the owner.
function whoseShare(host) {
  const [person, owners] = [hosts.primary[host], ownersOf(host)];
  const name = person === null ? hosts.username[host] : owners.includes(person) ? null : nameOf(person);
  return one(name).flatMap((known) => [" ", quiet(known)]);
}

// Lists: of each column the head, the text by which it is sorted and saved, and what its cell shows.

function column(head, text, cell = (row) => [bdi(text(row) ?? "")]) {
  return { head, text, cell };
}

function count(head, value) {
  return { head, text: value, cell: (row) => [whole(value(row))], isNumber: true };
}

function persons(head, found) {
  return column(head, (row) => personTexts(found(row)), (row) => personLinks(found(row)));
}

function dates(head, of) {
  return column(head, (host) => of[host], (host) => [date(of[host])]);
}

const owner = persons(content.plan ? "Owner (PLAN)" : "Owner", ownersOf);
const hostName = column("Host", (host) => hosts.name[host], (host) => [hostLink(host)]);
const status = column("Status", (host) => `${hosts.status[host]}: ${hosts.why[host]}`, state);
const sure = { ...column(content.measured === "share" ? "Share" : "How sure", sureOf, howSure), saved: sureText, isNumber: true };
const seen = dates("User's last logon", hosts.seen);
const department = column("Department", (host) => hosts.departments[host]);
const primary = persons("Primary user", (host) => one(hosts.primary[host]));

const OF_HOSTS = [
  { name: "status", title: "Status", of: (host) => hosts.status[host] },
  { name: "reason", title: "Reason", of: (host) => hosts.why[host] },
  { name: "department", title: "Department", of: (host) => hosts.department[host] },
  { name: "kind", title: "Kind of host", of: (host) => hosts.kind[host] },
];

// The filters that only the cards above the lists set, and the panel of a person.
const FROM_CARDS = [
  { name: "of", title: "Person", say: (key) => people.name[people.key.indexOf(key)] ?? key },
  { name: "stage", title: "Reached", say: (value) => content.stages[value - 1] ?? value },
  { name: "sure", title: sure.head, say: (value) => `${10 * value} to ${10 * value + 10}%` },
];

// What a file has of hosts beside the columns of the list.
const SAVED = {
  address: column("Owner's address", (host) => ownersOf(host).map((person) => people.address[person]).join(", ")),
  id: column("Host id", (host) => hosts.host_id[host]),
  remedy: column("What would change it", (host) => hosts.remedy[host]),
};

function hostsView(title, empty, holds, columns) {
  const open = (host) => ({ host: hostKey(host), person: null });
  const rows = allHosts.filter(holds);
  return { title, empty, rows, facets: OF_HOSTS, find: hostsFound, open, columns, saved: { primary, ...SAVED } };
}

const ownRuns = [...new Set(writes.run.filter((_, row) => writes.own[row]))];

// Of each list also what is said where it has no rows.
const VIEWS = {
  hosts: hostsView("Hosts", "The inventory has no host.", hasAsset, {
    name: hostName,
    owner,
    status,
    sure: { ...sure, cell: (host) => [...howSure(host), ...whoseShare(host)] },
    seen,
    department,
  }),
  conflicts: hostsView("Conflicts", "No host has another owner than its primary user.", isConflict, {
    name: hostName,
    recorded: persons("Owner in the inventory", ownersOf),
    primary,
    sure,
    since: dates("Since", hosts.conflict_since),
    acknowledged: column("Acknowledged", acknowledged),
    seen,
  }),
  people: {
    title: "People",
    empty: "The inventory has no user asset that owns or uses a host.",
    rows: numbers(people.key.length),
    facets: [],
    find: peopleFound,
    open: (person) => ({ person: people.key[person], host: null }),
    columns: {
      person: persons("Person", (person) => [person]),
      address: column("Address", (person) => people.address[person]),
      department: column("Department", (person) => people.department[person]),
      owned: count("Owns", (person) => ownedBy(person).length),
      primary: count("Primary user of", (person) => usedMostBy(person).length),
      used: count("Logs on to", (person) => usedBy(person).length),
    },
  },
  users: {
    title: "Accounts to identify",
    empty: "Each account in the logons belongs to one person in the inventory.",
    rows: numbers(unmatched.user.length),
    facets: [],
    find: (words) => rowsWith(peopleFound(words), unmatched.user),
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
  writes: {
    title: content.plan ? "Plan" : ownRuns.length ? `Writes of run ${ownRuns.join(", ")}` : "Writes of this run",
    empty: content.plan ? "There is nothing to write." : "This run wrote nothing. What earlier runs wrote is with each host.",
    rows: numbers(writes.own.length).filter((row) => writes.own[row]),
    facets: [{ name: "outcome", title: "Outcome", of: (row) => writes.outcome[row] }],
    find: (words) => rowsWith(new Set([...hostsFound(words)].map(hostKey)), writes.host_id),
    open: (row) => ({ host: writes.host_id[row], person: null }),
    columns: {
      name: column("Host", (row) => writes.name[row], (row) => [link(titled(writes.name[row], writes.host_id[row]), VIEWS.writes.open(row))]),
      outcome: column("Outcome", (row) => [writes.outcome[row], ...one(writes.message[row])].join(": ")),
      before: persons("Owner before", (row) => writes.before[row]),
      after: persons(owner.head, (row) => writes.after[row]),
      department: column("Department", (row) => writes.department[row]),
      criticality: column("Criticality", (row) => writes.criticality[row]),
      at: column("When", (row) => writes.at[row], (row) => [time(writes.at[row])]),
    },
  },
  names: hostsView("Hosts not in the inventory", "The inventory has every host of the logons.", (host) => !hasAsset(host), {
    name: hostName,
    primary,
    sure,
    seen,
  }),
};

// A column without any value is left out.
for (const view of Object.values(VIEWS)) {
  const hasValue = ([, { text }]) => view.rows.some((row) => String(text(row) ?? ""));
  view.columns = Object.fromEntries(Object.entries(view.columns).filter(hasValue));
}
VIEWS.conflicts.rows.sort((host, other) => isKnown(host) - isKnown(other));
VIEWS.hosts.advice = content.plan ? "Planned hosts come first, the least certain of them on top." : undefined;
VIEWS.names.advice = `A host can have an owner once a host asset has its name in ${content.hostnameField}.`;

// Search: a text in a name, an address or an id; or else a whole name in another spelling of it.

const texts = lazily(() => {
  const lines = (texts) => `\n${texts.filter(Boolean).map(folded).join("\n")}\n`;
  return {
    hosts: allHosts.map((host) => lines([hosts.name[host], ...(hosts.names[host] ?? "").split(" "), hosts.host_id[host]])),
    people: people.key.map((key, person) => lines([people.name[person], people.address[person], key, ...(people.names[person] ?? "").split(" ")])),
    accounts: accounts.name.map((name) => lines([name])),
  };
});

// `LT-1.CORP.EXAMPLE` is lt-1; `CORP\ann` and `ann@corp.example` are ann.
function spellings(words) {
  const account = words.slice(words.lastIndexOf("\\") + 1);
  const [name, domain] = account.split("@");
  return account !== words || domain !== undefined ? [account, name] : [words.split(".")[0]];
}

// Of hosts, people and accounts, which ones a text finds; null: none.
function marked(words) {
  for (const text of [words, ...spellings(words).map((word) => `\n${word}\n`)]) {
    const marks = Object.entries(texts()).map(([of, all]) => [of, all.map((each) => each.includes(text))]);
    if (text.trim() && marks.some(([, each]) => each.includes(true))) {
      return Object.fromEntries(marks);
    }
  }
  return null;
}

// What the whole text finds, or else all of its words.
function found(words, rows) {
  const marks = marked(words);
  if (marks || !/\s/.test(words)) {
    return new Set(marks ? rows(marks) : []);
  }
  return words.split(/\s+/).map((word) => found(word, rows)).reduce((all, more) => all.intersection(more));
}

function hostsFound(words) {
  return found(words, (marks) => {
    const named = (host) => personsOf(host).some((person) => marks.people[person]);
    const used = (host) => usersOf(host).some((user) => marks.accounts[account[user]]);
    return allHosts.filter((host) => marks.hosts[host] || named(host) || used(host));
  });
}

function peopleFound(words) {
  return found(words, (marks) => {
    const ofAccounts = accounts.person.filter((_, number) => marks.accounts[number]);
    return [...numbers(people.key.length).filter((person) => marks.people[person]), ...ofAccounts];
  });
}

const rowsWith = (known, keys) => new Set(numbers(keys.length).filter((row) => known.has(keys[row])));

// The address says all: view, q, the facets, stage, sure, sort; and which host or person is open.

const asked = () => new URLSearchParams(location.hash.slice(1));

function addressWith(changes) {
  const next = asked();
  for (const [name, value] of Object.entries(changes)) {
    next.delete(name);
    one(value || null).forEach((known) => next.set(name, known));
  }
  return `#${next}`;
}

function go(address, method = "pushState") {
  history[method](null, "", address);
  follow();
}

// The rows to show, and the values of each facet with the rows that nothing but this facet excludes.
function narrowed(view, query) {
  const words = folded(query.get("q") ?? "").trim();
  const hits = words ? view.find(words) : null;
  const [stage, tenth] = ["stage", "sure"].map((name) => (query.has(name) ? Number(query.get(name)) : null));
  const isSure = (host) => sureOf(host) !== null && Math.min(9, Math.floor(10 * sureOf(host))) === tenth;
  const person = query.has("of") ? people.key.indexOf(query.get("of")) : null;
  const wanted = ({ name }) => new Set(query.getAll(name));
  const facets = view.facets.map((facet) => ({ ...facet, wanted: wanted(facet), counts: new Map() }));
  const rows = view.rows.filter((row) => {
    const isOther = person !== null && !personsOf(row).includes(person);
    const isLess = (stage && hosts.stage[row] < stage) || (tenth !== null && !isSure(row));
    if ((hits && !hits.has(row)) || isOther || isLess) {
      return false;
    }
    const values = facets.map(({ of }) => of(row) ?? "none");
    const failing = facets.filter(({ wanted }, number) => wanted.size && !wanted.has(values[number]));
    facets.forEach(({ counts }, number) => {
      if (failing.length === 0 || (failing.length === 1 && failing[0] === facets[number])) {
        counts.set(values[number], (counts.get(values[number]) ?? 0) + 1);
      }
    });
    return failing.length === 0;
  });
  return { rows, facets };
}

function sorted(view, rows, sort) {
  const name = sort?.replace("-", "");
  if (!Object.hasOwn(view.columns, name)) {
    return rows;
  }
  const column = view.columns[name];
  const texts = rows.map((row) => column.text(row) ?? "");
  // To compare names takes longer than all else: each is compared once, however many rows have it.
  const order = [...new Set(texts)].sort(column.isNumber ? (left, right) => left - right : byName);
  const sign = sort.startsWith("-") ? -1 : 1;
  const places = new Map(order.map((text, place) => [text, text === "" ? Infinity : sign * place])); // "" comes last
  const keys = new Map(rows.map((row, number) => [row, places.get(texts[number])]));
  return [...rows].sort((first, second) => keys.get(first) - keys.get(second));
}

// Drawing

let list = {};

function drawList(query) {
  const name = Object.hasOwn(VIEWS, query.get("view")) ? query.get("view") : "hosts";
  const view = VIEWS[name];
  const { rows, facets } = narrowed(view, query);
  list = { name, view, rows: sorted(view, rows, query.get("sort")) };
  at("#views").replaceChildren(...Object.entries(VIEWS).map(([each, of]) => drawTab(each, of, each === name)));
  at("#search").value = query.get("q") ?? "";
  const number = `${whole(rows.length)} of ${whole(view.rows.length)}`;
  at("#list [role=status]").replaceChildren(number, ...drawChosen(facets, query));
  drawFacets(facets);
  drawHeads(view, query.get("sort"));
  drawRows(PAGE_ROWS);
  at("#about-rows").replaceChildren(...(rows.length ? one(view.advice ?? null) : whyEmpty(view, query)));
  at("#rows table").hidden = !rows.length;
}

function drawTab(name, view, isOpen) {
  const about = { href: `#view=${name}`, ariaCurrent: isOpen ? "page" : null };
  return element("a", about, view.title, " ", element("small", {}, whole(view.rows.length)));
}

// What narrows the list, by name: also where there is no place for the filters.
function drawChosen(facets, query) {
  const filters = [...FROM_CARDS, ...facets];
  const chosen = filters.filter(({ name }) => query.has(name)).map(({ name, title, say = String }) => {
    const text = `${title}: ${query.getAll(name).map(say).join(", ")}`;
    return element("a", { href: addressWith({ [name]: null }) }, bdi(text), element("small", {}, " ✕"));
  });
  const none = Object.fromEntries(["q", ...filters.map(({ name }) => name)].map((name) => [name, null]));
  const clear = chosen.length || query.has("q") ? [link("Clear filters", none)] : [];
  return [...chosen, ...clear].flatMap((each) => [" \u2003", each]);
}

function drawFacets(facets) {
  const useful = facets.filter(({ counts, wanted }) => wanted.size || counts.size > 1);
  const sections = useful.map(({ name, title, counts, wanted }) => {
    const values = [...counts].sort(([left, few], [right, many]) => many - few || byName(left, right));
    const chosen = values.filter(([value], number) => number < MOST_VALUES || wanted.has(value));
    const items = chosen.map(([value, count]) => drawValue(name, value, count, wanted.has(value)));
    const rest = andMore(values.length - chosen.length);
    return element("section", {}, element("h3", {}, title), element("ul", {}, ...items), ...rest);
  });
  at("#facets div").replaceChildren(...sections);
  at("#facets").hidden = !sections.length;
}

function drawValue(name, value, count, isChosen) {
  const next = asked();
  next[isChosen ? "delete" : "append"](name, value);
  const text = name === "status" ? pill(value) : bdi(value);
  const about = { href: `#${next}`, ariaCurrent: isChosen ? "true" : null };
  return element("li", {}, element("a", about, text, " ", element("small", {}, whole(count))));
}

function drawHeads(view, sort) {
  const heads = Object.entries(view.columns).map(([name, { head, isNumber }]) => {
    const [once, again] = isNumber ? [`-${name}`, name] : [name, `-${name}`];
    const order = { [name]: "ascending", [`-${name}`]: "descending" }[sort] ?? null;
    const arrow = { ascending: " ↑", descending: " ↓" }[order] ?? "";
    const sorting = link(head + arrow, { sort: sort === once ? again : once });
    return element("th", { scope: "col", className: name, ariaSort: order }, sorting);
  });
  at("#rows thead tr").replaceChildren(...heads);
}

// Why no row is there, and what finds some.
function whyEmpty(view, query) {
  if (!view.rows.length) {
    return [view.empty];
  }
  const words = folded(query.get("q") ?? "").trim();
  const finds = ({ find, rows }) => [find(words)].some((hits) => rows.some((row) => hits.has(row)));
  const links = Object.entries(VIEWS)
    .filter(([, other]) => words && finds(other))
    .map(([name, { title }]) => [title, `#${new URLSearchParams({ view: name, q: words })}`])
    .flatMap(([title, href]) => [" ", element("a", { href }, title)]);
  const where = links.length ? [" It is in:", ...links] : [];
  return [`None of ${whole(view.rows.length)} fits the search and the filters.`, ...where];
}

function drawRows(limit) {
  const columns = Object.entries(list.view.columns);
  const cells = (row) => columns.map(([name, column]) => drawCell(row, name, column));
  const rows = list.rows.slice(0, limit).map((row) => element("tr", { row }, ...cells(row)));
  at("#rows tbody").replaceChildren(...rows);
  at("#more").hidden = list.rows.length <= limit;
  at("#more").textContent = `These are ${whole(rows.length)} of ${whole(list.rows.length)}: show more`;
}

// On a phone each value that is there has its head beside it.
function drawCell(row, name, { head, text, cell }) {
  const drawn = element("td", { className: name }, ...cell(row));
  one(text(row) || null).forEach(() => (drawn.dataset.head = head));
  return drawn;
}

// The rows found, for a spreadsheet: see `as_csv` in reports/exports.py.
function download() {
  const formula = new RegExp(content.formula, "gv");
  const quoted = (cell) => `"${String(cell ?? "").replace(formula, "$1'$2").replaceAll('"', '""')}"`;
  const columns = Object.values({ ...list.view.columns, ...list.view.saved });
  const rows = [columns.map(({ head }) => head), ...list.rows.map((row) => columns.map(({ text, saved = text }) => saved(row)))];
  const text = rows.map((cells) => cells.map(quoted).join(",")).join("\r\n");
  const href = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
  element("a", { href, download: `${content.plan ? "PLAN-" : ""}${list.name}.csv` }).click();
  URL.revokeObjectURL(href);
}

async function copy(text, button, done = "Copied") {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = element("textarea", { value: text }); // a page that came by plain HTTP may not
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
  button.textContent = done;
}
