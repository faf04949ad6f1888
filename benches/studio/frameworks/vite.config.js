import { svelte } from "@sveltejs/vite-plugin-svelte";
import solid from "vite-plugin-solid";

export default { plugins: [svelte(), solid()], build: { modulePreload: { polyfill: false } } };
