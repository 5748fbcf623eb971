// The bundle is checked in: the same sources give the same bytes, under names that do not change.
import { defineConfig } from "vite";

/** The first style sheet and the font have the bundle's name, the style sheets of other views their own. */
const assetName = ({ names: [name = ""] }: { names: string[] }) =>
  name.endsWith(".css") && name !== "index.css" ? "console-[name][extname]" : "console[extname]";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    target: "es2023",
    outDir: "../../layers/core/python/helix/console/static",
    emptyOutDir: true,
    modulePreload: false,
    reportCompressedSize: false,
    assetsInlineLimit: 0,
    rolldownOptions: {
      output: { entryFileNames: "console.js", chunkFileNames: "console-[name].js", assetFileNames: assetName },
    },
  },
  worker: { format: "es", rolldownOptions: { output: { entryFileNames: "console-[name].js" } } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
