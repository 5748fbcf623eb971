// The bundle is checked in: the same sources give the same bytes, under names that do not change.
import { defineConfig } from "vite";

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
    cssCodeSplit: false,
    rolldownOptions: {
      output: { entryFileNames: "console.js", chunkFileNames: "console-[name].js", assetFileNames: "console[extname]" },
    },
  },
  worker: { format: "es", rolldownOptions: { output: { entryFileNames: "console-[name].js" } } },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
});
