// Builds the console into ../pulse/http/page/built, or into the folder that is named. The same source and lock file
// give the same bytes: a system test builds it again and compares.

import { createHash } from "node:crypto";
import { copyFileSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const out = resolve(process.argv[2] ?? join(here, "../pulse/http/page/built"));

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
const { metafile } = await build({
  absWorkingDir: here,
  metafile: true,
  entryPoints: [
    { in: "src/main.tsx", out: "console" },
    { in: "src/style/console.css", out: "console" },
  ],
  outdir: out,
  bundle: true,
  format: "esm",
  // Those with AbortSignal.any.
  target: ["es2022", "chrome116", "firefox124", "safari17.4"],
  minify: true,
  charset: "utf8",
  legalComments: "none",
  jsx: "automatic",
  jsxImportSource: "preact",
  // Also for the sources of the TypeScript client, which import their dependencies from here.
  tsconfig: join(here, "tsconfig.json"),
  nodePaths: [join(here, "node_modules")],
  // Not the client's own copy, which a checkout may have or lack.
  alias: { "eventsource-parser": join(here, "node_modules/eventsource-parser") },
  logLevel: "warning",
});
copyFileSync(join(here, "src/icon.svg"), join(out, "icon.svg"));
// The licences of what the console contains of others.
const packages = Object.keys(metafile.inputs).map((each) => /node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(each)?.[1]);
const licences = [...new Set(packages.filter(Boolean))].sort().map((name) => {
  const folder = join(here, "node_modules", name);
  const licence = readdirSync(folder).find((each) => /^licen[cs]e/i.test(each));
  if (!licence) throw new Error(`${name} has no licence file`);
  const { version } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  return `${name} ${version}\n\n${readFileSync(join(folder, licence), "utf8").trim()}\n`;
});
writeFileSync(join(out, "console.LICENSES.txt"), licences.join(`\n${"-".repeat(80)}\n\n`));
// The viewer of the API's reference, on a page of its own.
const viewer = join(here, "node_modules/swagger-ui-dist");
await build({
  absWorkingDir: here,
  entryPoints: [{ in: "src/docs.js", out: "docs" }],
  outdir: out,
  bundle: true,
  format: "esm",
  minify: true,
  charset: "utf8",
  legalComments: "none",
  logLevel: "error",
});
copyFileSync(join(viewer, "swagger-ui.css"), join(out, "swagger-ui.css"));
copyFileSync(join(viewer, "LICENSE"), join(out, "swagger-ui.LICENSE.txt"));

// Each file is requested by its content, so that browsers may keep it for ever.
for (const name of ["index.html", "docs.html"]) {
  const page = readFileSync(join(here, "src", name), "utf8").replace(/"page\/([\w.-]+)"/g, (_, file) => {
    const hash = createHash("sha256").update(readFileSync(join(out, file))).digest("hex");
    return `"page/${file}?v=${hash.slice(0, 12)}"`;
  });
  writeFileSync(join(out, name), page);
}
