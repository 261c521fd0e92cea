(() => {
  const say = (text) => { byId("status").textContent = text; };

  for (const element of all(".tools, .copy, .act")) element.hidden = false;

  // Runtime frames.
  const runtime = byId("runtime");
  const showRuntime = () => { root.dataset.runtime = runtime.checked ? "shown" : "hidden"; };
  runtime.addEventListener("change", showRuntime);
  showRuntime();
  const mine = byId("mine");
  const showMine = () => { root.dataset.mine = mine.checked ? "only" : "all"; };
  mine.addEventListener("change", showMine);

  // Small screens: sections and tools take no room until asked for.
  const small = matchMedia("(max-width: 40rem)");
  const more = byId("more");
  const showTools = (shown) => { root.dataset.tools = shown ? "shown" : "folded"; more.setAttribute("aria-expanded", shown); };
  more.addEventListener("click", () => showTools(root.dataset.tools !== "shown"));
  const fit = () => { byId("sections").open = !small.matches; showTools(false); };
  small.addEventListener("change", fit);
  fit();

  // Folding.
  const fold = (open) => {
    for (const details of all("main details")) details.open = open;
    say(open ? "All expanded" : "All collapsed");
  };
  byId("expand").addEventListener("click", () => fold(true));
  byId("collapse").addEventListener("click", () => fold(false));

  // A link to something folded opens it.
  const reveal = () => {
    let target = byId(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
    if (target.classList.contains("runtime")) { runtime.checked = true; showRuntime(); }
    if (target.classList.contains("frame") && !target.classList.contains("own")) { mine.checked = false; showMine(); }
    target.scrollIntoView({ block: target.classList.contains("frame") ? "center" : "start" });
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  // Search over frames, threads, the log and modules.
  const find = byId("find");
  const found = byId("found");
  const frames = all(".frame, .log > li, #modules tbody tr, .group > summary");
  const groups = all(".group");
  const folds = all(".group, .rounds > details, #modules > details");
  byId("find").parentElement.hidden = !frames.length;
  byId("runtime").parentElement.hidden = !document.querySelector(".frame");
  byId("mine").parentElement.hidden = !document.querySelector(".frame.own");
  let texts = null;
  let before = null;
  let hits = [];
  let current = 0;

  const mark = (query) => {
    if (!CSS.highlights) return;
    const ranges = [];
    for (const frame of hits.slice(0, 2000)) {
      const walker = document.createTreeWalker(frame, NodeFilter.SHOW_TEXT);
      while (walker.nextNode()) {
        const text = walker.currentNode.data.toLowerCase();
        for (let at = text.indexOf(query); at >= 0; at = text.indexOf(query, at + query.length)) {
          if (at + query.length > walker.currentNode.length) break;
          const range = new Range();
          range.setStart(walker.currentNode, at);
          range.setEnd(walker.currentNode, at + query.length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("found", new Highlight(...ranges));
  };

  const clear = () => {
    for (const element of [...frames, ...groups]) element.hidden = false;
    if (before) before.forEach((open, group) => { group.open = open; });
    before = null;
    hits = [];
    delete root.dataset.searching;
    if (CSS.highlights) CSS.highlights.delete("found");
    found.textContent = "";
  };

  const go = (index) => {
    current = index;
    hits[index].scrollIntoView({ block: "center" });
    found.textContent = `${index + 1} of ${hits.length}`;
  };

  const search = () => {
    const query = find.value.trim().toLowerCase();
    if (!query) return clear();
    texts ||= frames.map((frame) => frame.textContent.toLowerCase());
    before ||= new Map(folds.map((box) => [box, box.open]));
    root.dataset.searching = "";
    hits = frames.filter((frame, index) => {
      const hit = texts[index].includes(query);
      if (frame.tagName !== "SUMMARY") frame.hidden = !hit;
      return hit;
    });
    const holding = new Set();
    for (const hit of hits) {
      if (hit.tagName === "SUMMARY") holding.add(hit.parentElement);
      else for (let box = hit.parentElement; box; box = box.parentElement) if (box.tagName === "DETAILS") holding.add(box);
    }
    const inside = new Set(hits.filter((hit) => hit.tagName !== "SUMMARY").map((hit) => hit.closest(".group")));
    for (const box of folds) box.open = holding.has(box);
    for (const group of groups) {
      group.hidden = !holding.has(group);
      group.open = inside.has(group);
    }
    mark(query);
    if (hits.length) go(0);
    else found.textContent = "nothing found";
  };

  let waiting = 0;
  find.addEventListener("input", () => {
    clearTimeout(waiting);
    if (frames.length < 2000) search(); else waiting = setTimeout(search, 120);
  });
  find.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !hits.length) return;
    event.preventDefault();
    go((current + (event.shiftKey ? hits.length - 1 : 1)) % hits.length);
  });
  addEventListener("keydown", (event) => {
    const typing = event.target.matches?.("input:not([type=checkbox]), textarea");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      find.focus();
      find.select();
    } else if ((event.key === "j" || event.key === "k") && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
      step(event.key === "j" ? 1 : -1);
    } else if (event.key === "Escape" && (event.target === find || find.value)) {
      find.value = "";
      clear();
      find.blur();
    }
  });

  // j and k: to the next and the previous frame.
  let at = null;
  const step = (by) => {
    const shown = all(".frame").filter((frame) => frame.checkVisibility());
    if (!shown.length) return;
    const next = at && shown.includes(at) ? shown.indexOf(at) + by : by > 0 ? 0 : shown.length - 1;
    at = shown[Math.min(Math.max(next, 0), shown.length - 1)];
    const row = at.querySelector(".row");
    if (row.tagName !== "SUMMARY") row.tabIndex = -1;
    row.focus({ preventScroll: true });
    at.scrollIntoView({ block: "center" });
  };

  // Copying. The clipboard is closed to some pages opened from a file: a selection works there.
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  };
  for (const button of all(".copy")) {
    button.addEventListener("click", async () => {
      const source = button.dataset.copy ? byId(button.dataset.copy).value : button.parentElement.querySelector(".copied").textContent;
      await copy(source);
      const label = button.textContent;
      button.textContent = "Copied";
      say("Copied");
      setTimeout(() => { button.textContent = label; }, 1500);
    });
  }

  // Where the reader is.
  const links = new Map(all("nav a").map((link) => [link.getAttribute("href").slice(1), link]));
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      const link = links.get(entry.target.id);
      if (!link || !entry.isIntersecting) continue;
      for (const other of links.values()) other.removeAttribute("aria-current");
      link.setAttribute("aria-current", "true");
    }
  }, { rootMargin: "-15% 0px -75% 0px" });
  for (const section of all("main > section")) seen.observe(section);

  // Paper shows what matters; the rest folds back afterwards.
  let folded = [];
  addEventListener("beforeprint", () => {
    folded = all("#modules > details:not([open]), .group:not([open])").slice(0, 20);
    for (const details of folded) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of folded) details.open = false; });
})();
