// What makes the pages quicker to use. Without it every link and form works as it stands. It
// takes parts out of whole pages that the server drew, so nothing is drawn in two places.
"use strict";

const one = (selector, within = document) => within.querySelector(selector);
const say = (text) => { const said = one("#said"); if (said) said.textContent = text; };

async function page(address, signal) {
  const answer = await fetch(address, { signal, headers: { accept: "text/html" } });
  const read = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (!answer.ok) throw new Error(one("main p", read)?.textContent ?? "The server did not answer.");
  return read;
}

// Search as one types: the newest question only is answered.
const form = one("#search");
if (form) {
  let waiting, asking;
  const ask = async () => {
    asking?.abort();
    asking = new AbortController();
    const given = [...new FormData(form)].filter(([, value]) => value);
    const address = `/search?${new URLSearchParams(given)}`;
    try {
      const read = await page(address, asking.signal);
      one("#results").replaceWith(one("#results", read));
      say(one("#said", read).textContent);
      document.title = read.title;
      history.replaceState(null, "", address);
      watch();
    } catch (error) {
      if (error.name !== "AbortError") say(error.message);
    }
  };
  form.addEventListener("input", (event) => {
    if (event.isComposing) return; // a Chinese word is not whole until it is chosen
    clearTimeout(waiting);
    waiting = setTimeout(ask, 200);
  });
  form.addEventListener("compositionend", () => { clearTimeout(waiting); waiting = setTimeout(ask, 200); });
}

// Lists and conversations go on where they end.
const KEPT = 300; // messages in the page at once: beyond that the far end is let go
const AHEAD = 400; // pixels: so far beyond what is seen more is asked for
const busy = new Set();

async function extend(place) {
  const link = one("a", place);
  if (!link || busy.has(place.id)) return;
  busy.add(place.id);
  try {
    const read = await page(link.href);
    if (place.id === "more") {
      const list = one("#list") ?? one("#results");
      const more = one(`#${list.id}`, read);
      if (list.id === "list") list.append(...(more?.children ?? []));
      else place.before(...[...more.children].filter((each) => each.matches(".group")));
      place.replaceChildren(...one("#more", read).childNodes);
    } else {
      const messages = one("#messages");
      const back = place.id === "earlier";
      const fresh = [...one("#messages", read).children].filter((each) => !each.matches(".empty"));
      hold(messages, () => {
        back ? messages.prepend(...fresh) : messages.append(...fresh);
        place.replaceChildren(...one(`#${place.id}`, read).childNodes);
        letGo(messages, back);
      });
    }
  } catch (error) {
    say(error.message);
  }
  busy.delete(place.id);
  watch();
}

// What is seen stays where it is, whatever comes or goes above it.
function hold(messages, change) {
  const top = (each) => each.getBoundingClientRect().top;
  const seen = [...messages.children].find((each) => each.getBoundingClientRect().bottom > 0);
  const stood = seen && top(seen);
  // A browser that does the same by itself would move it once more. What is drawn later, in
  // another height than was guessed, is left to it.
  document.documentElement.style.overflowAnchor = "none";
  change();
  if (seen) scrollBy(0, top(seen) - stood);
  document.documentElement.style.overflowAnchor = "";
}

function letGo(messages, back) {
  const end = back ? "later" : "earlier";
  const edge = () => (back ? messages.lastElementChild : messages.firstElementChild);
  let gone = false;
  // Folded away, many messages are one line: what is seen stays, and so does what is near, or
  // it would be asked for again at once.
  const far = (at) => (back ? at.top > innerHeight + 2 * AHEAD : at.bottom < -2 * AHEAD);
  while (
    messages.querySelectorAll(".message").length > KEPT && far(edge().getBoundingClientRect())
  ) { edge().remove(); gone = true; }
  if (!gone) return;
  const all = messages.querySelectorAll(".message");
  const last = all[back ? all.length - 1 : 0].id.slice(1);
  const address = `${one("#session").dataset.address}&${back ? "after" : "before"}=${last}`;
  const link = document.createElement("a");
  link.href = address;
  link.textContent = back ? "Later messages" : "Earlier messages";
  one(`#${end}`).replaceChildren(link);
}

// Not before the reader moves: a page opened in its middle stays where it is.
const near = new IntersectionObserver((seen) => {
  for (const each of seen) if (each.isIntersecting && scrollY > 0) extend(each.target);
}, { rootMargin: `${AHEAD}px` });
function watch() {
  near.disconnect();
  for (const place of document.querySelectorAll("#more, #earlier, #later")) {
    if (one("a", place)) near.observe(place);
  }
}
addEventListener("scroll", watch, { once: true, passive: true });
watch();
document.addEventListener("click", (event) => {
  const link = event.target.closest("#more a, #earlier a, #later a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  extend(link.closest(".more"));
});

// The address follows the message at the top, so that it is there again after a reload.
const session = one("#session");
if (session) {
  let waiting;
  // A height in pixels means another message once another part of the conversation is here.
  history.scrollRestoration = "manual";
  if (/^#m\d+$/.test(location.hash)) one(location.hash)?.scrollIntoView();
  addEventListener("scroll", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      const line = one("body > header").getBoundingClientRect().bottom;
      const top = [...document.querySelectorAll(".message")].find(
        (each) => each.offsetParent && each.getBoundingClientRect().bottom > line + 8,
      );
      const at = top?.id.slice(1);
      if (at) history.replaceState(null, "", `${session.dataset.address}&at=${at}#m${at}`);
    }, 250);
  }, { passive: true });
  for (const link of session.querySelectorAll("[data-copy]")) link.textContent = "Copy";
  new MutationObserver(() => {
    for (const link of session.querySelectorAll("[data-copy]")) link.textContent = "Copy";
  }).observe(one("#messages"), { childList: true });
}

document.addEventListener("click", async (event) => {
  const copy = event.target.closest("[data-copy]");
  const into = event.target.closest("[data-into]");
  if (copy) {
    event.preventDefault();
    try {
      await navigator.clipboard.writeText(await (await fetch(copy.href)).text());
      copy.textContent = "Copied";
      say("Copied.");
    } catch {
      location.href = copy.href; // there it can be copied by hand
    }
  } else if (into) {
    event.preventDefault();
    into.textContent = "Counting …";
    try {
      const id = into.dataset.into;
      one(`#${id}`).replaceWith(one(`#${id}`, await page(into.href)));
    } catch (error) {
      into.textContent = error.message;
    }
  }
});

// Keys. Not while somebody writes, nor with a modifier: those are the browser's.
const items = () => [...document.querySelectorAll("[data-item]")].filter((each) => each.checkVisibility());
function move(step) {
  const all = items();
  if (!all.length) return;
  const here = all.indexOf(document.activeElement.closest?.("[data-item]"));
  let next = here + step;
  if (here < 0) {
    next = all.findIndex((each) => each.getBoundingClientRect().bottom > 60);
  }
  const chosen = all[Math.max(0, Math.min(all.length - 1, next))];
  chosen.focus({ preventScroll: true });
  chosen.scrollIntoView({ block: "nearest" });
  const bar = one("body > header").getBoundingClientRect().bottom;
  const above = bar - chosen.getBoundingClientRect().top;
  if (above > 0) scrollBy(0, -above - 8);
  if (next >= all.length - 1) extend(one("#later") ?? one("#more"));
  if (next <= 0 && one("#earlier")) extend(one("#earlier"));
}
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const writing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (writing) event.target.blur();
    else if (sessionStorage.getItem("from") && history.length > 1) history.back();
    else location.href = one("[data-up]")?.href ?? "/";
  } else if (writing) {
    return;
  } else if (event.key === "/") {
    event.preventDefault();
    one("[data-search]")?.select();
    one("[data-search]")?.focus();
  } else if (event.key === "j") move(1);
  else if (event.key === "k") move(-1);
  else if (event.key === "Enter" && event.target.matches(".message")) {
    one("details > summary", event.target)?.click();
  }
});
if (one("#list") || form) sessionStorage.setItem("from", location.href);
