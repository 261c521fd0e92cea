(() => {
  for (const element of all(".tools, .tally")) element.hidden = false;

  const groups = all(".crash-group");
  const fold = (open) => { for (const group of groups) if (!group.hidden) group.firstElementChild.open = open; };
  byId("expand").addEventListener("click", () => fold(true));
  byId("collapse").addEventListener("click", () => fold(false));

  // A link to a group opens it.
  const reveal = () => {
    const target = byId(decodeURIComponent(location.hash.slice(1)));
    if (target?.classList.contains("crash-group")) { target.hidden = false; target.firstElementChild.open = true; target.scrollIntoView(); }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Search, and the kinds: a group is shown if what it says matches, or one of its crashes, and then only these.
  const find = byId("find");
  const found = byId("found");
  const kinds = all(".tally button");
  const total = all(".crash").length;
  let texts = null;
  const shownKinds = () => new Set(kinds.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.kind));
  const read = () => groups.map((group) => ({
    group,
    head: (group.querySelector("summary").textContent + (group.querySelector("pre")?.textContent || "")).toLowerCase(),
    rows: all(".crash", group).map((row) => ({ row, text: row.textContent.toLowerCase() })),
  }));
  const search = () => {
    const query = find.value.trim().toLowerCase();
    const wanted = shownKinds();
    texts ||= read();
    let hits = 0;
    for (const { group, head, rows } of texts) {
      const whole = !query || head.includes(query);
      let some = 0;
      for (const { row, text } of rows) {
        const hit = whole || text.includes(query);
        row.hidden = !hit;
        if (hit) some += 1;
      }
      group.hidden = !some || (wanted.size > 0 && !wanted.has(group.dataset.kind));
      if (!group.hidden) hits += some;
      if (query && !whole && some) group.firstElementChild.open = true;
    }
    found.textContent = query || wanted.size ? `${hits} of ${total}` : "";
    byId("none").hidden = hits > 0 || !total;
  };
  let waiting = 0;
  find.addEventListener("input", () => {
    clearTimeout(waiting);
    if (total < 500) search(); else waiting = setTimeout(search, 120);
  });
  for (const kind of kinds) {
    kind.addEventListener("click", () => {
      kind.setAttribute("aria-pressed", kind.getAttribute("aria-pressed") !== "true");
      search();
    });
  }

  // Keys, as in the report of one crash.
  let at = -1;
  addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input, textarea");
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !typing) {
      event.preventDefault();
      find.focus();
      find.select();
    } else if ((event.key === "j" || event.key === "k") && !typing) {
      const shown = groups.filter((group) => !group.hidden);
      if (!shown.length) return;
      at = Math.min(Math.max(at + (event.key === "j" ? 1 : -1), 0), shown.length - 1);
      const head = shown[at].querySelector("summary");
      head.focus({ preventScroll: true });
      head.scrollIntoView({ block: "center" });
    } else if (event.key === "Escape" && (event.target === find || find.value)) {
      find.value = "";
      search();
      find.blur();
    }
  });
})();
