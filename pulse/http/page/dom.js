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

/** Show or hide an element, with a text where there is one. */
export function show(element, text) {
  element.hidden = text === "" || text === null;
  if (text) element.textContent = text;
}

/** A time in local format, with its ISO form as an attribute. */
export function moment(value) {
  const at = new Date(value);
  const isToday = at.toDateString() === new Date().toDateString();
  const options = isToday ? { timeStyle: "medium" } : { dateStyle: "medium", timeStyle: "short" };
  return make("time", { datetime: at.toISOString(), text: new Intl.DateTimeFormat(undefined, options).format(at) });
}

/** A JSON value as text: short ones on one line. */
export function json(value) {
  const short = JSON.stringify(value);
  return short === undefined || short.length <= 60 ? String(short) : JSON.stringify(value, null, 2);
}

export function events(count) {
  return count === 1 ? "1 event" : `${count} events`;
}

/** Keep a reader at the end of a box there, also when the box shrinks; a reader further up is not moved. */
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

/** Call a function once no more changes come, and not while its last call runs. */
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
