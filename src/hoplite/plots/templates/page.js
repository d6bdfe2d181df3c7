// Draws the figures, in the colours of the style sheet; theme, legends and the section in view.
"use strict";
(() => {
  const specs = JSON.parse(document.getElementById("specs").textContent);
  const root = document.documentElement;
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const hidden = new Set(); // "section series" of the models that are switched off
  const config = { displayModeBar: false, responsive: true, displaylogo: false };

  // ---- colours: "@lgc/0.2" is the style sheet's --lgc with opacity 0.2
  const probe = document.body.appendChild(document.createElement("span"));
  probe.hidden = true;
  let cache = {};
  function resolve(name) {
    if (!(name in cache)) {
      const [token, opacity] = name.slice(1).split("/");
      probe.style.color = `var(--${token})`;
      const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g);
      cache[name] = `rgba(${r},${g},${b},${opacity ?? 1})`;
    }
    return cache[name];
  }
  // only in colours: a node may be called "@ink"
  function themed(value, color = false) {
    if (Array.isArray(value)) {
      return typeof value.at(-1) === "number" ? value : value.map((part) => themed(part, color));
    }
    if (value && typeof value === "object") {
      return Object.fromEntries(
        Object.entries(value).map(([key, part]) => [key, themed(part, /color(scale)?$/.test(key))]),
      );
    }
    return color && typeof value === "string" && value[0] === "@" ? resolve(value) : value;
  }

  function draw() {
    cache = {};
    const font = getComputedStyle(document.body).fontFamily;
    for (const spec of specs) {
      const div = document.getElementById(spec.id);
      const section = div.closest("section").id;
      const data = themed(spec.data).map((trace) => ({
        ...trace,
        visible: !hidden.has(`${section} ${trace.meta?.series}`),
      }));
      const layout = themed(spec.layout);
      layout.font.family = font;
      Plotly.react(div, data, layout, config);
    }
  }

  // ---- theme: the system's until the button is pressed
  const stored = { get: () => null, set: () => {} };
  try {
    stored.get = () => localStorage.getItem("hoplite-theme");
    stored.set = (theme) => localStorage.setItem("hoplite-theme", theme);
    stored.get();
  } catch {
    stored.get = () => null; // no storage for this page: the choice lasts until it is closed
    stored.set = () => {};
  }
  const current = () => root.dataset.theme ?? (dark.matches ? "dark" : "light");
  if (["light", "dark"].includes(stored.get())) root.dataset.theme = stored.get();
  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = current() === "dark" ? "light" : "dark";
    stored.set(root.dataset.theme);
    draw();
  });
  dark.addEventListener("change", draw);
  let before;
  addEventListener("beforeprint", () => {
    before = root.dataset.theme;
    root.dataset.theme = "light";
    draw();
  });
  addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
    draw();
  });

  // ---- legends: one button per model for all plots of its section
  for (const key of document.querySelectorAll(".key")) {
    key.addEventListener("click", () => {
      const name = `${key.dataset.section} ${key.dataset.series}`;
      const shown = hidden.delete(name);
      if (!shown) hidden.add(name);
      key.setAttribute("aria-pressed", String(shown));
      draw();
    });
  }

  // ---- the navigation marks the section in view
  const links = new Map(
    [...document.querySelectorAll("nav.bar li a")].map((link) => [link.hash.slice(1), link]),
  );
  const observer = new IntersectionObserver(
    (entries) => {
      for (const entry of entries) {
        if (!entry.isIntersecting) continue;
        for (const link of links.values()) link.removeAttribute("aria-current");
        const link = links.get(entry.target.id);
        link.setAttribute("aria-current", "true");
        const list = link.closest("ul");
        list.scrollLeft = link.offsetLeft - list.offsetLeft - 24;
      }
    },
    { rootMargin: "-20% 0px -75% 0px" },
  );
  for (const id of links.keys()) observer.observe(document.getElementById(id));

  draw();
  root.dataset.ready = "true";
})();
