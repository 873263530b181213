// What the reader prefers: the colours and the language. Kept in the browser; nothing else is.

export type Theme = "system" | "light" | "dark";
export type Language = "en" | "zh";

const THEME = "hippocampus.theme";
const LANGUAGE = "hippocampus.language";

function read(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function write(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // The browser keeps nothing: the choice holds until the page is closed.
  }
}

export function theme(): Theme {
  const kept = read(THEME);
  return kept === "light" || kept === "dark" ? kept : "system";
}

export function applyTheme(chosen: Theme): void {
  if (chosen === "system") document.documentElement.removeAttribute("data-theme");
  else document.documentElement.setAttribute("data-theme", chosen);
}

export function chooseTheme(chosen: Theme): void {
  write(THEME, chosen);
  applyTheme(chosen);
}

export function language(): Language {
  const kept = read(LANGUAGE);
  if (kept === "en" || kept === "zh") return kept;
  const first = navigator.languages.find((each) => /^(zh|en)\b/i.test(each)) ?? "en";
  return first.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export function keepLanguage(chosen: Language): void {
  write(LANGUAGE, chosen);
}
