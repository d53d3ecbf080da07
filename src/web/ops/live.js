// Keeps every element with data-live as the server renders it. Without this script the page stands still, and a
// reload brings it up to date.
"use strict";
for (const element of document.querySelectorAll("[data-live]")) {
  const source = new EventSource(element.dataset.live);
  source.onmessage = (event) => {
    if (element.innerHTML !== event.data) element.innerHTML = event.data;
    element.dataset.state = "live";
  };
  // The browser connects again by itself; until then the numbers are known to be old.
  source.onerror = () => { element.dataset.state = "stale"; };
}
