// Creates elements without markup: the text of users never becomes HTML.

/** Make an element: `text` becomes its text, every other property an attribute; children are elements. */
export function make(tag, { text, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  if (text !== undefined) element.textContent = text;
  element.append(...children);
  return element;
}

/** Show an element with a text, or hide it if the text is empty. */
export function show(element, text) {
  element.hidden = text === "" || text === null;
  if (text) element.textContent = text;
}

/** Make an element for a time in local format, with its ISO form as an attribute. */
export function moment(value) {
  const at = new Date(value);
  const isToday = at.toDateString() === new Date().toDateString();
  const options = isToday ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" };
  return make("time", { datetime: at.toISOString(), text: new Intl.DateTimeFormat(undefined, options).format(at) });
}

/** Return a JSON value as text, on one line if it is short. */
export function json(value) {
  const short = JSON.stringify(value);
  return short === undefined || short.length <= 60 ? String(short) : JSON.stringify(value, null, 2);
}

export function events(count) {
  return count === 1 ? "1 event" : `${count} events`;
}

/** Keep a box scrolled to its end while the reader is there, also when it shrinks; a reader further up is not moved. */
export function atEnd(box) {
  const isNow = () => box.scrollHeight - box.scrollTop - box.clientHeight < 48;
  let is = true;
  const follow = () => {
    if (is) box.scrollTop = box.scrollHeight;
  };
  box.addEventListener("scroll", () => (is = isNow()), { passive: true });
  new ResizeObserver(follow).observe(box);
  return (change) => {
    change();
    follow();
  };
}

/** Call a function once for the changes of some milliseconds, and not while its last call runs. */
export function settled(call, milliseconds) {
  let timer = null;
  let running = false;
  let again = false;
  const run = async () => {
    timer = null;
    if (running) {
      again = true;
      return;
    }
    running = true;
    try {
      await call();
    } finally {
      running = false;
      if (again) {
        again = false;
        request();
      }
    }
  };
  const request = () => {
    timer ??= setTimeout(run, milliseconds);
  };
  const cancel = () => {
    clearTimeout(timer);
    timer = null;
    again = false;
  };
  return { request, cancel };
}
