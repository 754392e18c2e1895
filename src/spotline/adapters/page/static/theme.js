"use strict";
// Before anything is painted: the theme that was chosen here, or the system's.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("spotline-theme"); } catch { /* storage may be forbidden */ }
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
