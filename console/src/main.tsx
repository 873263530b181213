// The entry point.

import { render } from "preact";

import { App } from "./app";
import { MessagesProvider } from "./i18n";

const root = document.getElementById("console");
// Browsers that lack this, or cannot read this file, keep the notice that the page begins with.
if (root && typeof AbortSignal.any === "function") {
  root.replaceChildren();
  render(
    <MessagesProvider>
      <App />
    </MessagesProvider>,
    root,
  );
}
