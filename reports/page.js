"use strict";

// Draws the plots, and makes the tables sortable and searchable. Names are only ever compared, never parsed.

const tip = document.createElement("div");
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

const collator = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

function compare(one, other) {
  const [left, right] = [one.dataset.value, other.dataset.value];
  if (left === undefined || right === undefined) {
    return collator.compare(one.textContent, other.textContent);
  }
  return Number(left) - Number(right);
}

function makeSortable(table) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const rows = [...body.rows];
      const cells = new Map(rows.map((row) => [row, row.cells[column]]));
      const largestFirst = rows.some((row) => "value" in cells.get(row).dataset);
      const first = largestFirst ? "descending" : "ascending";
      const second = largestFirst ? "ascending" : "descending";
      const order = head.ariaSort === first ? second : first;
      const sign = order === "ascending" ? 1 : -1;
      rows.sort((one, other) => sign * compare(cells.get(one), cells.get(other)));
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", order);
      body.append(...rows);
    });
  });
}

function makeSearchable(table) {
  const rows = [...table.tBodies[0].rows];
  const texts = new Map(rows.map((row) => [row, folded(row.textContent)]));
  const tools = document.createElement("div");
  const box = document.createElement("input");
  const count = document.createElement("span");
  tools.className = "tools";
  box.type = "search";
  box.placeholder = "Search";
  box.setAttribute("aria-label", `Search: ${table.caption.textContent}`);
  count.setAttribute("role", "status");
  tools.append(box, count);
  table.parentElement.before(tools);
  box.addEventListener("input", () => {
    const words = folded(box.value).split(/\s+/).filter(Boolean);
    for (const row of rows) {
      row.hidden = !words.every((word) => texts.get(row).includes(word));
    }
    count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length}` : "";
  });
}

function folded(text) {
  return text.normalize("NFC").toLowerCase();
}

// Where the page is narrow a row is shown as a list, each value with the name of its column.
function label(table) {
  const names = [...table.tHead.rows[0].cells].map((head) => head.textContent);
  for (const row of table.tBodies[0].rows) {
    [...row.cells].forEach((cell, column) => {
      cell.dataset.label = names[column];
    });
  }
  table.classList.add("labelled");
}

for (const table of document.querySelectorAll("table.data")) {
  label(table);
  makeSortable(table);
  makeSearchable(table);
}
