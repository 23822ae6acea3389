// What opens beside the list: a host, with the days of its users and what was written, or a person.

const MANY = 12;
const STRIP = Math.min(30, content.windowDays);
const OF_DAYS = content.lastDay ? [`Logons of ${content.windowDays} days up to ${date(content.lastDay)}.`] : [];
const isFile = location.protocol === "file:"; // an address that works on this machine only
const panel = at("#panel");

// The first row that has a key in one of the columns: as it is, or else in another case.
function rowOf(key, ...columns) {
  const first = (isKey) => columns.map((texts) => texts.findIndex((text) => text && isKey(text))).find((row) => row >= 0);
  return first((text) => text === key) ?? first((text) => folded(text) === folded(key));
}

// What `explain` finds: an id, or a name as the rules compare them (rules 1.3, 1.4).
const called = (lines, name) => numbers(lines.length).filter((row) => lines[row].includes(`\n${name}\n`));

function hostCalled(text) {
  const isWhole = !content.shortHostnames || /^\d+(\.\d+){3}$/.test(text);
  return rowOf(text, allHosts.map(hostKey)) ?? called(texts().hosts, folded(isWhole ? text : text.split(".")[0])).at(0);
}

function personsCalled(text) {
  const name = folded(text);
  const names = [name, name.replace(/\s+/g, "."), ...(/[@\\]/.test(name) ? spellings(name) : [])];
  const ofAccount = (name) => called(texts().accounts, name).map((number) => accounts.person[number]);
  const each = names.map((name) => new Set([...called(texts().people, name), ...ofAccount(name)]));
  const exact = rowOf(text, people.key) ?? rowOf(text.split(/[()]/)[1] ?? "", people.key);
  return exact === undefined ? [...(each.find(({ size }) => size) ?? [])] : [exact];
}

function section(title, children) {
  return children.length ? [element("section", {}, element("h3", {}, title), ...children)] : [];
}

function items(nodes) {
  const lines = [...nodes.slice(0, MANY), andMore(nodes.length - MANY)].filter(({ length }) => length);
  return lines.length ? [element("ul", {}, ...lines.map((each) => element("li", {}, ...each)))] : [];
}

// A cell a day: the last 30 days of the window, or all; the last one is the highest bit, and at the right.
function strip(bits) {
  const isOn = (number) => bits & (1 << (30 - STRIP + number));
  const label = `${numbers(STRIP).filter(isOn).length} of the last ${STRIP} days`;
  const cell = (number) => ({ x: 10 * number, width: 9, height: 12, class: isOn(number) ? "on" : "off" });
  const cells = numbers(STRIP).map((number) => drawn("rect", cell(number)));
  const picture = { class: "strip", viewBox: `0 0 ${10 * STRIP - 1} 12`, preserveAspectRatio: "none", role: "img" };
  return drawn("svg", { ...picture, "aria-label": label }, drawn("title", {}, label), ...cells);
}

function strips(title, users, named, without = []) {
  const row = (cells) => element("tr", {}, ...cells.map((cell) => element("td", {}, ...cell)));
  const logons = (user) => quiet(`${whole(events[user])} logon${events[user] === 1 ? "" : "s"}`);
  const rows = users.slice(0, MANY).map((user) => row([named(user), [strip(days[user])], [logons(user)]]));
  const last = new Date(content.lastDay);
  const ends = [new Date(last - (STRIP - 1) * 86_400_000), last].map((end) => quiet(day.format(end).slice(0, -5)));
  const axis = row([andMore(users.length - MANY), [element("div", { className: "axis" }, ...ends)], []]);
  const table = element("table", { className: "strips" }, element("tbody", {}, ...rows, axis));
  return section(title, [...(users.length ? [table] : []), ...without]);
}

// The owners of a host in conflict who did not log on to it.
function ownersWithoutLogons(host) {
  const seen = new Set(usersOf(host).map(personOf));
  const absent = isConflict(host) ? ownersOf(host).filter((person) => !seen.has(person)) : [];
  const said = ` (owner): no logon in ${content.windowDays} days`;
  return absent.map((person) => element("p", {}, ...personLinks([person]), said));
}

function copyButton(name, text) {
  const onclick = ({ target }) => copy(text, target);
  return element("button", { type: "button", onclick }, name);
}

function command(title, text, about = "") {
  return section(title, [element("code", {}, text), " ", copyButton("Copy", text), element("p", {}, quiet(about))]);
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value?.length);
  const parts = known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, ...[value].flat())]);
  return [element("dl", {}, ...parts)];
}

// Two sentences and the link, and for a host without an owner what would give it one.
function ticket(host) {
  const [owned, link] = [ownersOf(host).length > 0, isFile ? [] : [hostLink(host).href]];
  const check = owned ? "check whose it is, and correct the inventory if it is wrong" : "find out whose it is";
  const advice = owned ? [] : one(hosts.remedy[host]);
  return [hosts.sentence[host], ...advice, [...OF_DAYS, `Please ${check}.`].join(" "), ...link].join("\n");
}

function writeItem(row) {
  const before = writes.before[row] ? [...personLinks(writes.before[row]), " → "] : [];
  const after = writes.after[row] ? personLinks(writes.after[row]) : ["no owner"];
  const by = [...one(writes.by[row]).map((name) => `by ${name}`), `run ${writes.run[row]}`].join(", ");
  return [time(writes.at[row]), ` ${writes.outcome[row]}: `, ...before, ...after, " ", quiet(by)];
}

// The other hosts with a name of this one.
function namesakes(host) {
  const all = new Set([...namesOf(host)].flatMap(withName));
  const others = [...all].filter((other) => hasAsset(host) && other !== host);
  const said = `${whole(all.size)} hosts in the inventory have this name. See also: `;
  return others.length ? [element("p", { className: "note" }, said, ...withCommas(others.map(hostLink)))] : [];
}

function hostPanel(host) {
  const history = numbers(writes.host_id.length).filter((row) => writes.host_id[row] === hosts.host_id[host]);
  const effect = "It undoes the write, and no run of this instance gives the host to this owner again; without --wrong the next run does.";
  const accountOf = (user) => [accounts.name[account[user]]].filter((name) => name !== people.name[personOf(user)]);
  const userNames = (user) => [...personLinks([personOf(user)]), " ", ...accountOf(user).map(quiet)];
  return [
    ...namesakes(host),
    element("p", {}, ...state(host)),
    element("p", {}, hosts.sentence[host]), // from left to right, whatever name it begins with
    ...section("What would change it", one(hosts.remedy[host])),
    ...(isConflict(host) && !isKnown(host) ? command("Or let the owner stay, for operators", hosts.acknowledge[host]) : []),
    copyButton("Copy for a ticket", ticket(host)),
    ...strips("Who logs on", usersOf(host), userNames, ownersWithoutLogons(host)),
    ...facts([
      [hosts.planned[host] === null ? "Owner" : owner.head, owner.cell(host)],
      [primary.head, ownersOf(host).includes(hosts.primary[host]) ? [] : primary.cell(host)],
      [sure.head, howSure(host)],
      ["Conflict since", date(hosts.conflict_since[host])],
      ["Acknowledged", acknowledged(host)],
      [seen.head, date(hosts.seen[host])],
      ["Department", hosts.departments[host]],
      ["Criticality", hosts.criticality[host]],
      ["Kind of host", one(hosts.kind[host]).map((kind) => `${kind} (excluded accounts count here, too)`)],
      ["Names", hosts.names[host]],
      ["Host id", hosts.host_id[host]],
    ]),
    ...section(content.plan ? "Planned and written" : "Written", items(history.map(writeItem))),
    ...one(hosts.undo[host]).flatMap((undo) => command("If the owner is wrong, for operators", undo, effect)),
  ];
}

function personPanel(person) {
  const key = people.key[person];
  const listed = (title, found) => {
    const rows = found.map((host) => [hostLink(host), " ", ...state(host)]);
    return section(`${title}: ${whole(found.length)}`, items(rows));
  };
  const hostOf = new Map(usedBy(person).flatMap((host) => usersOf(host).map((user) => [user, host])));
  const users = [...hostOf.keys()].filter((user) => personOf(user) === person);
  users.sort((user, other) => events[other] - events[user]);
  const names = accounts.name.filter((_, number) => accounts.person[number] === person);
  const lacksAsset = (host) => hosts.stage[host] === content.stages.length - 1 && names.includes(hosts.username[host]);
  return [
    ...facts([
      ["Address", people.address[person]],
      ["Department", people.department[person]],
      ["Id", key],
      ["Accounts", names.join(", ")],
    ]),
    ...section("What would change it", usedBy(person).filter(lacksAsset).slice(0, 1).map((host) => hosts.remedy[host])),
    ...listed("Owns", ownedBy(person)),
    ...listed("Primary user of", usedMostBy(person)),
    ...strips(`Logs on to: ${whole(usedBy(person).length)}`, users, (user) => [hostLink(hostOf.get(user))]),
    element("a", { href: `#${new URLSearchParams({ of: key, person: key })}` }, "All these hosts in the list"),
  ];
}

// The host or person that the address names: what the panel shows, and its key.
function opened(query) {
  const host = query.has("host") ? hostCalled(query.get("host").trim()) : undefined;
  const persons = query.has("person") ? personsCalled(query.get("person").trim()) : [];
  if (host !== undefined) {
    return { name: titleOf(host), key: hostKey(host), body: hostPanel(host) };
  }
  const [person] = persons.length === 1 ? persons : [];
  return person === undefined ? { persons } : { name: nameOf(person), key: people.key[person], body: personPanel(person) };
}

let openKey = null;

function drawPanel(query) {
  const { key = null, name = "", body = [], persons = [] } = opened(query);
  const isShown = key !== null;
  const unknown = isShown ? null : (query.get("host") ?? query.get("person"));
  const several = [`${whole(persons.length)} people and accounts are called ${unknown}: `, ...personLinks(persons)];
  at("#hint").replaceChildren(...(persons.length > 1 ? several : one(unknown && `This page does not know ${unknown}.`)));
  const close = { className: "close", href: addressWith({ host: null, person: null }), ariaLabel: "Close" };
  const title = element("h2", { id: "panel-title", tabIndex: -1 }, bdi(name));
  panel.replaceChildren(element("header", {}, title, element("a", close, "✕")), ...body);
  panel.hidden = !isShown;
  document.body.classList.toggle("open", isShown);
  if (key !== openKey) {
    const before = at("#rows tr[aria-current] a") ?? at("#search");
    (isShown ? title : before).focus({ preventScroll: true });
    panel.scrollTop = 0;
  }
  const isOpen = (row) => isShown && Object.values(list.view.open(row)).includes(key);
  const place = list.rows.findIndex(isOpen);
  if (place >= at("#rows tbody").rows.length) {
    drawRows(place + PAGE_ROWS);
  }
  for (const row of at("#rows tbody").rows) {
    row.ariaCurrent = isOpen(row.row) ? "true" : null;
  }
  if (key !== openKey) {
    at("#rows tr[aria-current]")?.scrollIntoView({ block: "nearest" });
    openKey = key;
  }
}

// Follow the address: the list is drawn again only if it changes.

let shownList = null;

function follow() {
  const query = asked();
  const ofList = addressWith({ host: null, person: null });
  if (ofList !== shownList) {
    drawList(query);
    shownList = ofList;
  }
  drawPanel(query);
}

function openRow({ target }) {
  if (!target.closest("a") && getSelection().isCollapsed) {
    go(addressWith(list.view.open(target.closest("tr").row)));
  }
}

function useKeys(event) {
  const { key, target } = event;
  const isTyping = target.matches("input");
  const step = { ArrowDown: 1, ArrowUp: -1, ...(isTyping ? {} : { j: 1, k: -1 }) }[key];
  const rows = [...at("#rows tbody").rows];
  const next = step && rows[rows.indexOf(target.closest("#rows tr") ?? at("#rows tr[aria-current]")) + step];
  if (event.ctrlKey || event.metaKey || event.altKey) {
    return;
  }
  if (key === "Escape" && !panel.hidden) {
    go(addressWith({ host: null, person: null }));
  } else if (key === "/" && !isTyping) {
    event.preventDefault();
    at("#search").focus();
  } else if (next && target.closest("tbody, #search, body:not(:focus-within), #panel-title")) {
    event.preventDefault();
    next.querySelector("a").focus();
  }
}

function copyCommand({ target }) {
  if (target.matches("[data-copy]")) {
    copy(target.parentElement.querySelector("code").textContent, target);
  }
}

at("#rows tbody").addEventListener("click", openRow);
addEventListener("keydown", useKeys);
at("#search").addEventListener("input", ({ target }) => go(addressWith({ q: target.value }), "replaceState"));
at("#more").addEventListener("click", () => drawRows(at("#rows tbody").rows.length + PAGE_ROWS));
at("#download").addEventListener("click", download);
at("#copy-link").addEventListener("click", ({ target }) => {
  copy(location.href, target, isFile ? "Copied; it works on this machine only" : "Copied");
});
at(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  at("#search").focus();
});
document.addEventListener("click", copyCommand);
// How much of the screen the header takes, in however many lines its texts are.
new ResizeObserver(() => {
  document.documentElement.style.setProperty("--header", `${at("body > header").offsetHeight}px`);
}).observe(at("body > header"));
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => {
  drawRows(PRINTED_ROWS);
  document.querySelectorAll("details").forEach((each) => (each.open = true));
});
addEventListener("afterprint", () => drawRows(PAGE_ROWS));
document.querySelectorAll("time").forEach((each) => each.replaceWith(time(each.dateTime)));
at("#list").hidden = !allHosts.length;
at("#facets").open = innerWidth > 700;
follow();
at("#no-list").remove();
setTimeout(texts); // so that the first search is quick as well
