"use strict";
const field = document.querySelector("input.filter");
field.hidden = false;
field.addEventListener("input", () => {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  for (const entry of document.querySelectorAll("nav.index li")) {
    const text = entry.textContent.toLowerCase();
    const shown = words.every((word) => text.includes(word));
    entry.hidden = !shown;
    document.getElementById(entry.dataset.for).hidden = !shown;
  }
});
