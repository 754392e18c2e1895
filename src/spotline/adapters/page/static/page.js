"use strict";
// What a page does by itself: follows changes, shows local times, answers keys. Without it every
// page works as links and forms.
(function () {
  const root = document.documentElement;
  const QUIET_MS = 700;

  function remember(name, value) { try { localStorage.setItem(name, value); } catch { /* forbidden */ } }
  function remembered(name) { try { return localStorage.getItem(name); } catch { return null; } }

  // --- times ---
  // Made once: a page has hundreds of times, and making a format takes as long as a hundred uses.
  const HERE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
  function showTimes() {
    const local = root.dataset.times === "local";
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.getAttribute("datetime"));
      const utc = at.toISOString().slice(0, 16).replace("T", " ") + " UTC";
      const here = HERE.format(at);
      const shown = local ? here : utc;
      if (time.textContent !== shown) time.textContent = shown;
      time.title = local ? utc : here + " here";
    }
    for (const button of document.querySelectorAll("[data-toggle-local]")) {
      button.textContent = local ? "local" : "UTC";
      button.setAttribute("aria-pressed", String(local));
    }
  }
  function toggleTimes() {
    root.dataset.times = root.dataset.times === "local" ? "utc" : "local";
    remember("spotline-times", root.dataset.times);
    showTimes();
    window.spotlineCharts.drawAll(true);
  }

  // --- the page is made again where something has changed ---
  let refreshing = false;
  async function refresh() {
    if (refreshing || document.hidden) return;
    refreshing = true;
    try {
      await htmx.ajax("GET", location.href, { target: "#view", select: "#view", swap: "outerMorph", selectOOB: "#standing:outerMorph,#scrubber:outerMorph,#entry:outerMorph" });
    } finally { refreshing = false; }
  }
  function say(text, lost) {
    const status = document.getElementById("connection");
    if (!status) return;
    status.textContent = text;
    status.classList.toggle("lost", Boolean(lost));
  }
  let following = null;
  function follow() {
    if (following) { following.close(); following = null; }
    if (root.dataset.live !== "yes") return;
    let due = null;
    following = new EventSource("/page/changes");
    following.onopen = () => say("follows the log");
    following.onerror = () => say("lost the connection: what is shown may be old", true);
    following.addEventListener("change", () => {
      if (due !== null) return;
      due = setTimeout(() => { due = null; refresh(); }, QUIET_MS);
    });
  }
  document.addEventListener("visibilitychange", () => { if (!document.hidden && root.dataset.live === "yes") refresh(); });

  // --- what is still being worked out is looked at again ---
  const AGAIN_MS = 1500;
  let again = null;
  function lookAgain() {
    if (again !== null || !document.querySelector("[data-again]")) return;
    again = setTimeout(() => { again = null; refresh().finally(lookAgain); }, AGAIN_MS);
  }

  function settle() {
    showTimes();
    window.spotlineCharts.drawAll();
    lookAgain();
  }
  document.addEventListener("htmx:after:swap", settle);
  document.addEventListener("htmx:after:settle", settle);

  // --- what never came says so, and how to ask for it by itself ---
  document.addEventListener("htmx:error", (event) => {
    const asker = event.target;
    // A page that is looked at again asks too: no note of its parts is about that.
    if (!asker.hasAttribute?.("hx-get")) return;
    const note = asker.matches("[role=status]") ? asker : asker.querySelector("[role=status]");
    if (!note) return;
    const link = note.querySelector("a");
    note.textContent = "This could not be worked out: no answer came. ";
    if (link) { link.textContent = "Ask for it by itself"; note.append(link); }
  });

  // --- the scrubber ---
  document.addEventListener("input", (event) => {
    if (event.target.id === "at") document.getElementById("at-shown").textContent = event.target.value + " of " + event.target.dataset.last;
  });
  document.addEventListener("change", (event) => {
    if (event.target.id === "at") go(Number(event.target.value));
    const form = event.target.closest("form.filters");
    if (form) form.requestSubmit();
  });
  function go(slot) {
    const scrubber = document.getElementById("at");
    if (!scrubber) return;
    const address = new URL(location.href);
    if (slot === null || slot >= Number(scrubber.max)) address.searchParams.delete("at");
    else address.searchParams.set("at", String(Math.max(slot, Number(scrubber.min))));
    location.assign(address);
  }

  // --- keys ---
  let goes = false;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    const at = document.getElementById("at");
    if (goes) {
      goes = false;
      const link = document.querySelectorAll(".top nav a")[Number(event.key) - 1];
      if (link) link.click();
      return;
    }
    if (event.key === "g") goes = true;
    else if (event.key === "?") document.getElementById("keys").showModal();
    else if (event.key === "[" && at) go(Number(at.value) - 1);
    else if (event.key === "]" && at) go(Number(at.value) + 1);
    else if (event.key === "n" && new URL(location.href).searchParams.has("at")) go(null);
    else if (event.key === "t") toggleTimes();
    else if (event.key === "/") {
      const filter = document.querySelector("form.filters input, form.filters select");
      if (filter) { filter.focus(); event.preventDefault(); }
    }
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-toggle-local]")) toggleTimes();
    if (event.target.closest("[data-toggle-theme]")) {
      const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = dark ? "light" : "dark";
      remember("spotline-theme", root.dataset.theme);
      window.spotlineCharts.drawAll(true);
    }
  });

  root.dataset.times = remembered("spotline-times") === "local" ? "local" : "utc";
  document.addEventListener("DOMContentLoaded", () => { settle(); follow(); });
})();
