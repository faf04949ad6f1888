import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

export default defineConfig({
  plugins: [svelte()],
  // The content security policy forbids inline scripts and data: fonts.
  build: { modulePreload: { polyfill: false }, assetsInlineLimit: 0 },
});
