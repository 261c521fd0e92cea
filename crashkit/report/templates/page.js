"use strict";
const root = document.documentElement;
const byId = (id) => document.getElementById(id);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];

// Theme: the system's until the reader chooses; remembered by this page alone.
const theme = byId("theme");
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme || (prefersDark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  const other = isDark() ? "light" : "dark";
  theme.textContent = other === "dark" ? "Dark" : "Light";
  theme.setAttribute("aria-label", `Change to the ${other} theme`);
};
theme.addEventListener("click", () => { root.dataset.theme = isDark() ? "light" : "dark"; nameTheme(); });
prefersDark.addEventListener("change", nameTheme);
nameTheme();
