// What opens beside the list: a machine, with the days of its users and what was written, or a person.

const MANY = 12;
const STRIP = 30;
const panel = at("#panel");
const lastDay = content.lastDay && new Date(content.lastDay);
const hostByKey = lazily(() => {
  const names = numbers(hosts.name.length).flatMap((host) => [hosts.name[host], hosts.host_id[host]].map((name) => [name, host]));
  return new Map(names.filter(([name]) => name).reverse().map(([name, host]) => [folded(name), host]));
});
const personByKey = lazily(() => {
  const keys = numbers(people.key.length).flatMap((person) => [people.address[person], people.key[person]].map((key) => [key, person]));
  return new Map(keys.filter(([key]) => key).map(([key, person]) => [folded(key), person]));
});

function section(title, ...children) {
  return children.flat().length ? element("section", {}, element("h3", {}, title), ...children.flat()) : null;
}

function items(nodes, all = nodes.length) {
  const more = all > nodes.length ? [element("li", {}, quiet(`and ${whole(all - nodes.length)} more`))] : [];
  return nodes.length ? [element("ul", {}, ...nodes, ...more)] : [];
}

// A cell a day: the last 30 days of the window, the last one at the right.
function strip(bits) {
  const on = numbers(STRIP).filter((number) => bits & (1 << number));
  const cell = (number) => drawn("rect", { x: 10 * number, width: 9, height: 12, class: on.includes(number) ? "on" : "off" });
  const label = `${on.length} of the last ${STRIP} days`;
  const title = drawn("title", {}, label);
  return drawn("svg", { class: "strip", viewBox: "0 0 299 12", role: "img", "aria-label": label }, title, ...numbers(STRIP).map(cell));
}

function strips(title, users, first) {
  const rows = users.slice(0, MANY).map((user) => {
    const logons = `${whole(events[user])} logon${events[user] === 1 ? "" : "s"}`;
    return element("tr", {}, element("td", {}, ...first(user)), element("td", {}, strip(days[user])), element("td", {}, logons));
  });
  const from = new Date(lastDay - (STRIP - 1) * 86_400_000);
  const axis = element("div", { className: "axis" }, element("small", {}, day.format(from)), element("small", {}, day.format(lastDay)));
  const ends = element("tr", {}, element("td", {}), element("td", {}, axis), element("td", {}));
  const more = users.length > MANY ? [quiet(`and ${whole(users.length - MANY)} more`)] : [];
  return users.length ? section(title, element("table", { className: "strips" }, element("tbody", {}, ...rows, ends)), more) : null;
}

function command(title, text) {
  const button = element("button", { type: "button" }, "Copy");
  button.dataset.copy = "";
  return section(title, element("p", { className: "command" }, element("code", {}, text), " ", button));
}

const quoted = (name) => (/^[\w.:,@%+=/-]+$/.test(name) ? name : `'${name.replaceAll("'", `'"'"'`)}'`);

function facts(pairs) {
  const known = pairs.filter(([, value]) => value?.length);
  return element("dl", {}, ...known.flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, ...[value].flat())]));
}

function userLink(user) {
  const person = personOf(user);
  const name = accounts.name[account[user]];
  return people.key[person] === `${name} (account)` ? [personLink(person)] : [personLink(person), " ", quiet(name)];
}

function writeItem(row) {
  const change = [...(writes.before[row] ? [...personLinks(writes.before[row]), " → "] : []), ...personLinks(writes.after[row])];
  const by = [writes.by[row] && `by ${writes.by[row]}`, `run ${writes.run[row]}`].filter(Boolean).join(", ");
  return element("li", {}, time(writes.at[row]), ` ${writes.outcome[row]}: `, ...change, " ", quiet(by));
}

function machinePanel(host) {
  const status = hosts.status[host];
  const users = usersOf(host);
  const history = numbers(writes.host_id.length).filter((row) => writes.host_id[row] === hosts.host_id[host]);
  const name = quoted(hosts.name[host]);
  const { undo, conflicts } = content.commands;
  return [
    element("p", { className: "state" }, pill(status), " ", element("small", {}, hosts.why[host])),
    element("p", { className: "reason" }, bdi(hosts.sentence[host])),
    section("What would change it", ...one(hosts.remedy[host]).map((text) => element("p", {}, bdi(text)))),
    strips("Who logs on", users, userLink),
    facts([
      [content.plan && hosts.planned[host] !== null ? "Owner (PLAN)" : "Owner", personLinks(ownersOf(host))],
      ["Primary user", ownersOf(host).includes(hosts.primary[host]) ? [] : personLinks(one(hosts.primary[host]))],
      [sure.head, howSure(host)],
      ["Conflict since", date(hosts.conflict_since[host])],
      ["Last logon", date(hosts.seen[host])],
      ["Department", hosts.department[host]],
      ["Kind of machine", hosts.kind[host]],
      ["Names", hosts.names[host]],
      ["Host id", hosts.host_id[host]],
    ]),
    section("What was written", ...items(history.map(writeItem))),
    status === "written" ? command("Undo this one", `${undo} ${hosts.wrote_in[host]} --host ${name}`) : null,
    status === "conflict" ? command("It may stay as it is", `${conflicts} --acknowledge ${name} --note 'why'`) : null,
  ];
}

function machineItem(host) {
  return element("li", {}, hostLink(host), " ", pill(hosts.status[host]), " ", element("small", {}, hosts.why[host]));
}

function personPanel(person) {
  const { owned, primary, used } = machinesOf(person);
  const names = accounts.name.filter((_, number) => accounts.person[number] === person);
  const list = (title, found) => section(`${title}: ${whole(found.length)}`, ...items(found.slice(0, MANY).map(machineItem), found.length));
  const byEvents = [...used.values()].flat().sort((user, other) => events[other] - events[user]);
  const hostOf = new Map([...used].flatMap(([host, users]) => users.map((user) => [user, host])));
  return [
    facts([
      ["Address", people.address[person]],
      ["Department", people.department[person]],
      ["Id", people.key[person]],
      ["Accounts", names.join(", ")],
    ]),
    list("Owns", owned),
    list("Primary user of", primary),
    strips(`Logs on to: ${whole(used.size)}`, byEvents, (user) => [hostLink(hostOf.get(user))]),
    element("p", {}, link("Show these machines in the list", { view: null, q: people.key[person].replace(/ \(account\)$/, "") })),
  ];
}

// The number of the machine or person that the address names.
function opened(query) {
  const [host, person] = [
    [hostByKey, "host"],
    [personByKey, "person"],
  ].map(([byKey, name]) => (query.has(name) ? byKey().get(folded(query.get(name))) : undefined));
  return host === undefined && person === undefined ? null : { host, person };
}

function drawPanel(found) {
  panel.hidden = !found;
  document.body.classList.toggle("open", found !== null);
  if (!found) {
    panel.replaceChildren();
    return;
  }
  const { host, person } = found;
  const [name, body] = host === undefined ? [people.name[person], personPanel(person)] : [hosts.name[host], machinePanel(host)];
  const close = element("a", { className: "close", href: addressWith({ host: null, person: null }), ariaLabel: "Close" }, "✕");
  const title = element("h2", { id: "panel-title", tabIndex: -1 }, bdi(name));
  panel.replaceChildren(element("header", {}, title, close), ...body.filter(Boolean));
  panel.scrollTop = 0;
  title.focus({ preventScroll: true });
}

// Follow the address: only what it changes is drawn again.

let shownList = null;
let opener = null;

function follow() {
  const query = asked();
  const ofList = new URLSearchParams([...query].filter(([name]) => name !== "host" && name !== "person")).toString();
  if (ofList !== shownList) {
    drawList(query);
    shownList = ofList;
  }
  const found = opened(query);
  const wasOpen = !panel.hidden;
  drawPanel(found);
  if (wasOpen && !found) {
    (opener?.isConnected ? opener : places.search).focus({ preventScroll: true });
  }
  const unknown = found ? null : (query.get("host") ?? query.get("person"));
  at("#hint").hidden = !unknown;
  at("#hint").textContent = unknown ? `This page does not know ${unknown}.` : "";
  const open = found && (found.host === undefined ? people.key[found.person] : hostKey(found.host));
  for (const row of document.querySelectorAll("#rows tbody tr")) {
    row.ariaCurrent = found && Object.values(list.view.open(row.row)).includes(open) ? "true" : null;
  }
}

function openRow(event) {
  const row = event.target.closest("tr");
  opener = event.target.closest("a") ?? row?.querySelector("a");
  if (row && !event.target.closest("a") && getSelection().isCollapsed) {
    go(addressWith(list.view.open(row.row)));
  }
}

function useKeys(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  const rows = [...document.querySelectorAll("#rows tbody tr")];
  const next = step && rows[rows.indexOf(event.target.closest("tr")) + step];
  if (event.key === "Escape" && !panel.hidden) {
    go(addressWith({ host: null, person: null }));
  } else if (next && event.target.closest("tbody, #search")) {
    event.preventDefault();
    next.querySelector("a")?.focus();
  }
}

at("#rows tbody").addEventListener("click", openRow);
at("#list").addEventListener("keydown", useKeys);
places.search.addEventListener("input", () => go(addressWith({ q: places.search.value }), "replaceState"));
places.more.addEventListener("click", () => drawRows(document.querySelectorAll("#rows tbody tr").length + PAGE_ROWS));
at("#download").addEventListener("click", download);
at("#copy-link").addEventListener("click", (event) => copy(location.href, event.target));
document.addEventListener("click", (event) => {
  if (event.target.matches("[data-copy]")) {
    copy(event.target.parentElement.querySelector("code").textContent, event.target);
  }
});
at(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  places.search.focus();
});
addEventListener("hashchange", follow);
addEventListener("beforeprint", () => drawRows(PRINTED_ROWS));
addEventListener("afterprint", () => drawRows(PAGE_ROWS));
document.querySelectorAll("time").forEach((each) => each.replaceWith(time(each.dateTime)));
at("#list").hidden = !hosts.name.length;
places.facets.open = innerWidth > 700;
follow();
