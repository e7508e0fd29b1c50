// Builds the page into the server's crate: a folder of compressed files, and a list of them in Rust.
//
// Everything is deterministic: the compressor is JavaScript of a fixed version, files have no times, and the
// list is sorted. So `tests/page/run` can compare a new build with the files that are committed.
import { createHash } from "node:crypto";
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { gzipSync } from "fflate";
import { defineConfig, type Plugin } from "vite";

const OUT = join(import.meta.dirname, "../crates/server/src/page/dist");
const PLAIN = join(import.meta.dirname, "node_modules/.page");

/** Types by the ends of names; the files of those that gain from it are compressed. */
const TYPES: Record<string, [type: string, compressed: boolean]> = {
  html: ["text/html; charset=utf-8", true],
  js: ["text/javascript; charset=utf-8", true],
  css: ["text/css; charset=utf-8", true],
  svg: ["image/svg+xml", true],
  md: ["text/plain; charset=utf-8", true],
  woff2: ["font/woff2", false],
};

/** Fonts of rare alphabets: letters of them are drawn with the system's font. */
const LEFT_OUT = /KaTeX_(Fraktur|SansSerif|Main-BoldItalic|Caligraphic-Bold|Typewriter)/;

/** KaTeX's styles name three formats of each font: one is enough, and rare ones are left out. */
function fonts(): Plugin {
  return {
    name: "fonts",
    enforce: "pre",
    transform(code, id) {
      if (!id.split("?")[0].endsWith("katex.css") && !id.split("?")[0].endsWith("katex.min.css")) return null;
      const faces = code.replace(/@font-face\s*\{[^}]*\}/g, (face) => {
        if (LEFT_OUT.test(face)) return "";
        const woff2 = /url\([^)]*\.woff2\)\s*format\(["']woff2["']\)/.exec(face);
        if (!woff2) throw new Error(`no woff2 in ${face}`);
        return face.replace(/src:[^;}]*/, `src:${woff2[0]}`);
      });
      return { code: faces, map: null };
    },
  };
}

function files(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  const paths = entries.filter((e) => e.isFile()).map((e) => relative(folder, join(e.parentPath, e.name)));
  return paths.map((path) => path.replaceAll("\\", "/")).sort();
}

/** Writes what was built for the server. */
function embed(): Plugin {
  return {
    name: "embed",
    apply: "build",
    closeBundle() {
      rmSync(OUT, { recursive: true, force: true });
      mkdirSync(OUT, { recursive: true });
      const entries = files(PLAIN).map((path) => {
        const [type, compressed] = TYPES[path.split(".").pop() ?? ""] ?? [];
        if (!type) throw new Error(`no type is known for ${path}`);
        const bytes = readFileSync(join(PLAIN, path));
        const stored = compressed ? gzipSync(bytes, { level: 9, mem: 12, mtime: 0 }) : bytes;
        const name = path.replaceAll("/", "-") + (compressed ? ".gz" : "");
        writeFileSync(join(OUT, name), stored);
        const tag = createHash("sha256").update(bytes).digest("hex").slice(0, 16);
        const hashed = path.startsWith("assets/");
        return (
          `    File { path: ${JSON.stringify(`/${path}`)}, kind: ${JSON.stringify(type)}, tag: ${JSON.stringify(tag)}, ` +
          `hashed: ${hashed}, compressed: ${compressed}, bytes: include_bytes!(${JSON.stringify(name)}) },\n`
        );
      });
      const list = "// Written by web/build. The files of the page, by their paths.\n&[\n" + entries.join("") + "]\n";
      writeFileSync(join(OUT, "files.in"), list);
    },
  };
}

export default defineConfig({
  plugins: [fonts(), embed()],
  build: {
    outDir: PLAIN,
    emptyOutDir: true,
    assetsInlineLimit: 0,
    target: "es2022",
    modulePreload: { polyfill: false },
    // What is in the files of others, and on what terms: a part of the page.
    license: { fileName: "licenses.md" },
    rollupOptions: { input: ["index.html", "status.html"] },
  },
  server: {
    // With `arclight serve` beside it: its answers, under this page's address.
    proxy: Object.fromEntries(["/v1", "/api", "/status.json"].map((path) => [path, "http://127.0.0.1:8080"])),
  },
});
