// Before anything is painted: the theme that was chosen, if it is not the system's.
try {
  var chosen = localStorage.getItem("arclight.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch (e) {
  // Storage is switched off: the system's theme.
}
